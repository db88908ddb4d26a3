// Memory of size: page-aligned, zeroed, leased, returned to the system as soon as it ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "src/memory/ledger.h"

namespace sluice {

class Buffer {
 public:
  enum class Touch : uint8_t {
    lazily,  // pages come as they are written: for what will be written whole
    now,     // pages are there at once: for what the plan promised and is written bit by bit
  };

  Buffer() = default;
  // Anonymous memory, in huge pages where the system allows. Throws Error(no_fit) when the ledger
  // or the system refuses.
  Buffer(Ledger& ledger, Use use, std::string_view owner, uint64_t bytes, Touch touch);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::span<std::byte> bytes() const { return bytes_; }
  std::byte* data() const { return bytes_.data(); }

  // Pages of a range are there when this returns, if the system has them. What they hold stays;
  // others may write to them meanwhile.
  void touch(uint64_t offset, uint64_t bytes) const;

  // Gives the whole pages of a range that is not used any more back to the system and the ledger.
  // Each range once; what lies there is lost.
  void give_back(uint64_t offset, uint64_t bytes);

  // What a buffer of `bytes` is charged: whole pages.
  static uint64_t charged_bytes(uint64_t bytes);

 private:
  void unmap();

  Lease lease_;
  std::byte* mapping_ = nullptr;
  uint64_t mapped_ = 0;
  std::span<std::byte> bytes_;
};

}  // namespace sluice
