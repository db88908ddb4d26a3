#include "src/load/spill_header.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "io/json_header.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {
namespace {

constexpr const char* kFormat = "sluice.spill/2";

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

SpillIndexReader::SpillIndexReader(const io::Fd& fd, const std::filesystem::path& path,
                                   const SpillHeader& header)
    : fd_(fd),
      path_(path),
      offset_(header.index_offset),
      left_(header.index_bytes),
      memory_(std::min(header.index_bytes, 64 * KiB)) {}

std::span<const std::byte> SpillIndexReader::next(uint64_t most) {
  if (ahead_.empty()) {
    const std::span<std::byte> to =
        std::span(memory_).first(std::min<uint64_t>(left_, memory_.size()));
    io::read_exactly(fd_, path_, offset_, {reinterpret_cast<char*>(to.data()), to.size()});
    checksum_.add({reinterpret_cast<const char*>(to.data()), to.size()});
    offset_ += to.size();
    ahead_ = to;
  }
  const std::span<const std::byte> bytes = ahead_.first(std::min<uint64_t>(most, ahead_.size()));
  ahead_ = ahead_.subspan(bytes.size());
  left_ -= bytes.size();
  return bytes;
}

bool SpillIndexReader::read(std::span<std::byte> to) {
  if (to.size() > left_) return false;
  while (!to.empty()) {
    const std::span<const std::byte> bytes = next(to.size());
    std::ranges::copy(bytes, to.begin());
    to = to.subspan(bytes.size());
  }
  return true;
}

bool SpillIndexReader::skip(uint64_t bytes) {
  if (bytes > left_) return false;
  while (bytes > 0) bytes -= next(bytes).size();
  return true;
}

void write_spill_index(const io::NewFile& file, SpillHeader header,
                       std::span<const std::byte> index) {
  header.index_bytes = index.size();
  header.index_checksum = checksum128(index);
  const std::string text = header_text(header);
  file.write(header.index_offset, index);
  file.write(0, std::as_bytes(std::span(text)));
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
