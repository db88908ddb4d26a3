// Shared by the tests of this room: files of random bytes, staging memory, safetensors made by
// hand, and the sentence of an error.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "io/reader.h"
#include "src/base/error.h"
#include "tests/support/random.h"
#include "tests/support/temp.h"

namespace sluice::io {

class Staging {
 public:
  explicit Staging(uint64_t bytes)
      : memory_(static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, bytes)), &std::free),
        bytes_(bytes) {}
  std::span<std::byte> span() const { return {memory_.get(), bytes_}; }

 private:
  std::unique_ptr<std::byte, decltype(&std::free)> memory_;
  uint64_t bytes_;
};

inline std::string random_bytes(test::Random& random, int64_t size) {
  std::string bytes(static_cast<size_t>(size), '\0');
  for (size_t i = 0; i < bytes.size(); i += 8) {
    uint64_t word = random.engine()();
    for (size_t j = i; j < std::min(i + 8, bytes.size()); ++j, word >>= 8) {
      bytes[j] = static_cast<char>(word);
    }
  }
  return bytes;
}

// Writes the file and describes it as open_checkpoint would.
inline CheckpointFile make_file(const std::filesystem::path& path, std::string_view bytes) {
  test::write_file(path, bytes);
  return describe_file(open_regular(path), path, path.filename().string());
}

// Pages of the file in the page cache; nullopt where the file system keeps its data there.
inline std::optional<size_t> cached_pages(const std::filesystem::path& path) {
  struct statfs system{};
  if (statfs(path.c_str(), &system) != 0) return std::nullopt;
  if (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC) return std::nullopt;
  Fd fd = open_regular(path);
  size_t size = std::filesystem::file_size(path);
  void* at = mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (at == MAP_FAILED) return std::nullopt;
  std::vector<unsigned char> resident((size + 4095) / 4096);
  int error = mincore(at, size, resident.data());
  munmap(at, size);
  if (error != 0) return std::nullopt;
  return std::count_if(resident.begin(), resident.end(), [](auto r) { return r & 1; });
}

// Afterwards the page cache holds nothing of the file.
inline void push_to_disk(const std::filesystem::path& path) {
  Fd fd(open(path.c_str(), O_RDWR));
  fsync(fd.get());
  posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
}

// Gives up root's privileges for a scope; other users have none to give up.
class Unprivileged {
 public:
  Unprivileged() : before_(geteuid()) {
    if (before_ == 0) check(seteuid(65534) == 0, "seteuid");
  }
  ~Unprivileged() { check(seteuid(before_) == 0, "seteuid"); }
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;

 private:
  uid_t before_;
};

inline std::string safetensors(std::string_view header, std::string_view data) {
  std::string file;
  for (int shift = 0; shift < 64; shift += 8) {
    file += static_cast<char>(static_cast<uint64_t>(header.size()) >> shift);
  }
  return file.append(header).append(data);
}

// One entry of a header, uint8 data.
inline std::string entry(std::string_view name, int begin, int end) {
  return fmt::format(R"("{}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}})", name,
                     end - begin, begin, end);
}

inline std::string object(std::initializer_list<std::string> entries) {
  return fmt::format("{{{}}}", fmt::join(entries, ","));
}

// Returns the message of the Error, which must be of this kind; a failed test and "" when there is
// none.
template <class Call>
std::string error_of(ErrorKind kind, Call&& call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(static_cast<int>(e.kind()), static_cast<int>(kind)) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

}  // namespace sluice::io
