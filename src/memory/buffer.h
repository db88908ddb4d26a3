// Large memory: page-aligned, zeroed, leased. A Buffer's end returns it to the system, or to the
// owner that it was taken from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "src/memory/ledger.h"

namespace sluice {

// Source of memory that is not the system's, such as a device's.
class MemoryOwner {
 public:
  virtual ~MemoryOwner() = default;
  virtual void take_back(std::span<std::byte> bytes) noexcept = 0;
};

class Buffer {
 public:
  enum class Touch : uint8_t {
    lazily,  // pages come as they are written: for what will be written whole
    now,     // pages are there at once: for what the plan promised and is written bit by bit
  };

  Buffer() = default;
  // Anonymous memory, in huge pages and on all NUMA nodes where the system allows. Throws
  // Error(no_fit) when the ledger or the system refuses.
  Buffer(Ledger& ledger, Use use, std::string_view owner, uint64_t bytes, Touch touch);
  // Memory that `owner` has given for the lease. The owner outlives the buffer.
  Buffer(Lease lease, std::span<std::byte> bytes, MemoryOwner& owner)
      : lease_(std::move(lease)), owner_(&owner), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::span<std::byte> bytes() const { return bytes_; }
  std::byte* data() const { return bytes_.data(); }

  // Allocates the pages of a range, if the system has them. Their contents stay; others may write
  // to them meanwhile. Pages of an owner are there already.
  void touch(uint64_t offset, uint64_t bytes) const;

  // Gives the whole pages of a range that is not used any more back to the system and the ledger.
  // Each range once; what lies there is lost. Memory of an owner stays as it is.
  void give_back(uint64_t offset, uint64_t bytes);

  // Bytes that a buffer of `bytes` is charged: whole pages.
  static uint64_t charged_bytes(uint64_t bytes);

 private:
  void release();

  Lease lease_;
  MemoryOwner* owner_ = nullptr;  // null: the system
  std::byte* mapping_ = nullptr;
  uint64_t mapped_ = 0;
  std::span<std::byte> bytes_;
};

}  // namespace sluice
