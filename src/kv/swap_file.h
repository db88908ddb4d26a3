// KV blocks on disk: a file of slots that is gone when its process ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "io/new_file.h"
#include "io/reader.h"
#include "src/memory/buffer.h"

namespace sluice {

class SwapFile {
 public:
  // Takes room for all slots, of `slot_bytes` each, a multiple of io::kDirectAlignment. Throws
  // Error(runtime) where the directory cannot be written or has no room for them.
  SwapFile(Ledger& ledger, const std::filesystem::path& directory, int64_t slots,
           uint64_t slot_bytes);
  static uint64_t memory_bytes(uint64_t slot_bytes);  // that it takes

  // Where a slot's contents are put together, before they are written.
  std::span<std::byte> scratch() const { return memory_.bytes().first(slot_bytes_); }
  void write(int32_t slot, std::span<const std::byte> contents) const;
  io::ReadRequest read_request(int32_t slot) const;
  io::Reader& reader() const { return *reader_; }

 private:
  uint64_t slot_bytes_;
  Buffer memory_;  // scratch, then the reader's slots
  io::NewFile file_;
  std::unique_ptr<io::Reader> reader_;
};

}  // namespace sluice
