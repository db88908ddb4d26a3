#include "io/reader.h"

#include <algorithm>
#include <array>
#include <utility>

#include "io/dummy.h"
#include "io/readers.h"
#include "src/base/error.h"

namespace sluice::io {

ReaderStats& ReaderStats::operator+=(const ReaderStats& other) {
  bytes_requested += other.bytes_requested;
  bytes_read += other.bytes_read;
  bytes_direct += other.bytes_direct;
  reads += other.reads;
  retries += other.retries;
  return *this;
}

std::optional<ReaderKind> parse_reader_kind(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, ReaderKind>, 4> kKinds{{
      {"auto", ReaderKind::automatic},
      {"uring", ReaderKind::uring},
      {"pread", ReaderKind::pread},
      {"mmap", ReaderKind::mmap},
  }};
  for (auto [known, kind] : kKinds) {
    if (name == known) return kind;
  }
  return std::nullopt;
}

std::unique_ptr<Reader> open_reader(std::span<const CheckpointFile> files,
                                    std::span<std::byte> staging, const ReaderOptions& options,
                                    const SystemCalls& calls) {
  if (std::ranges::any_of(files, is_dummy))
    return open_pread_reader(files, staging, options, calls, "dummy weights");
  if (std::ranges::any_of(files, [](const CheckpointFile& f) { return f.joined != nullptr; }))
    return open_pread_reader(files, staging, options, calls, "parts of tensors are joined");
  if (options.kind == ReaderKind::mmap) return open_mmap_reader(files, staging, options, calls);
  if (options.kind == ReaderKind::pread) {
    return open_pread_reader(files, staging, options, calls, "");
  }
  std::string refusal;
  if (auto reader = open_uring_reader(files, staging, options, calls, refusal)) return reader;
  if (options.kind == ReaderKind::uring) {
    fail(ErrorKind::usage, "the reader 'uring' cannot be used here ({}); use 'auto' or 'pread'",
         refusal);
  }
  return open_pread_reader(files, staging, options, calls, refusal);
}

}  // namespace sluice::io
