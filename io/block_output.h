// A file that is written from its beginning to its end, in blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <stop_token>
#include <string_view>

#include "io/new_file.h"
#include "io/stream.h"

namespace sluice::io {

// A regular file takes its room on the disk at once, and appears under its name, in place of what
// was there, when it is complete; a link stays, and what it links to changes. What is no regular
// file, a pipe say, is written to as it is; "-" is stdout.
class BlockOutput {
 public:
  // `block` outlives this and is fastest where it begins and ends at multiples of kDirectAlignment.
  // Throws Error(runtime) naming the file and the reason, Error(refused) where another process
  // writes it.
  BlockOutput(const std::filesystem::path& path, uint64_t bytes, std::span<std::byte> block,
              const std::stop_token& stop);

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // Writes zeros up to a multiple of `alignment`.
  void align(uint64_t alignment);
  uint64_t written() const { return offset_ + filled_; }
  // Once all bytes are written.
  void finish();

 private:
  void flush();

  uint64_t bytes_;
  std::span<std::byte> block_;
  size_t filled_ = 0;    // bytes of it
  uint64_t offset_ = 0;  // of the block in the file
  std::optional<NewFile> file_;
  std::optional<OutputStream> stream_;
};

}  // namespace sluice::io
