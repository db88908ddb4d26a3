// A file of the spill directory that is written in order, or compared as it would be written, with
// a checksum of each of its pages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "io/new_file.h"
#include "io/reader.h"

namespace sluice {

class SummedOutput {
 public:
  static constexpr uint64_t kPageBytes = io::kDirectAlignment;

  // Writes to `file` from the page at `begin` on, and stores the checksums. Both outlive this.
  SummedOutput(const io::NewFile& file, uint64_t begin, std::span<uint64_t> checksums)
      : file_(&file), at_(begin), checksums_(checksums) {}
  // Writes nothing, and compares the checksums with those that are there.
  SummedOutput(uint64_t begin, std::span<uint64_t> checksums) : at_(begin), checksums_(checksums) {}

  // Bytes from `offset` on, which is not before the end of those that came before; between them are
  // zeros. Throws as io::NewFile::write does.
  void write(uint64_t offset, std::span<const std::byte> bytes);
  // Zeros up to `end`, where a page begins. False where a checksum is another.
  bool finish(uint64_t end);

 private:
  void add_zeros(uint64_t end);
  void add_page(std::span<const std::byte> page);

  const io::NewFile* file_ = nullptr;
  uint64_t at_;
  std::span<uint64_t> checksums_;
  size_t pages_ = 0;  // that are complete
  bool differs_ = false;
  size_t filled_ = 0;  // bytes of the page that is not
  std::array<std::byte, kPageBytes> page_;
};

}  // namespace sluice
