#include "src/load/spill_header.h"

#include <fcntl.h>

#include <utility>

#include "io/json_header.h"
#include "src/base/checksum.h"
#include "src/base/error.h"
#include "src/plan/spill_layout.h"

namespace sluice {
namespace {

constexpr const char* kFormat = "sluice.spill/1";

std::string header_text(const SpillHeader& h) {
  Json json{{"format", kFormat},
            {"model", h.model},
            {"scheme", h.scheme},
            {"fingerprint", h.fingerprint},
            {"tensors", h.tensors},
            {"index_offset", h.index_offset},
            {"index_bytes", h.index_bytes},
            {"index_checksum", h.index_checksum}};
  return io::json_header(json, kSpillHeaderBytes);
}

}  // namespace

std::optional<SpillHeader> read_spill_header(const std::filesystem::path& path) {
  try {
    io::Fd fd = io::open_regular(path);
    Json json = io::read_json_header(fd, path, kSpillHeaderBytes);
    JsonFields fields(json, path.string());
    if (fields.string("format") != kFormat) return std::nullopt;
    auto count = [&](const char* key) {
      return static_cast<uint64_t>(fields.integer(key, 0, INT64_MAX));
    };
    return SpillHeader{fields.string("model"),         fields.string("scheme"),
                       fields.string("fingerprint"),   count("tensors"),
                       count("index_offset"),          count("index_bytes"),
                       fields.string("index_checksum")};
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::string read_spill_index(const io::Fd& fd, const std::filesystem::path& path,
                             const SpillHeader& header, std::span<std::byte> index) {
  index = index.first(header.index_bytes);
  io::read_exactly(fd, path, header.index_offset,
                   {reinterpret_cast<char*>(index.data()), index.size()});
  posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  return checksum128(index);
}

io::CheckpointFile finish_spill_file(io::NewFile& file, SpillHeader header,
                                     std::span<const std::byte> index) {
  header.index_bytes = index.size();
  header.index_checksum = checksum128(index);
  const std::string text = header_text(header);
  file.write(header.index_offset, index);
  file.write(0, std::as_bytes(std::span(text)));
  return file.publish();
}

void checksum_blocks(std::span<const std::byte> bytes, uint64_t block_bytes,
                     std::span<uint64_t> checksums) {
  for (size_t i = 0; i * block_bytes < bytes.size(); ++i)
    checksums[i] = checksum64(bytes.subspan(i * block_bytes, block_bytes));
}

bool blocks_are_intact(std::span<const std::byte> bytes, uint64_t block_bytes,
                       std::span<const uint64_t> checksums) {
  for (size_t i = 0; i * block_bytes < bytes.size(); ++i)
    if (checksum64(bytes.subspan(i * block_bytes, block_bytes)) != checksums[i]) return false;
  return true;
}

}  // namespace sluice
