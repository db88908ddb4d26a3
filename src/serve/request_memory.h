// Memory of connections and requests: a part of the budget that is leased once, before the load. So
// whoever is served, the process takes no more than was planned.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

namespace sluice {

// Thread-safe.
class RequestMemory {
 public:
  explicit RequestMemory(uint64_t bytes) : bytes_(bytes) {}
  RequestMemory(const RequestMemory&) = delete;
  RequestMemory& operator=(const RequestMemory&) = delete;

  // A part of it, given back at the end; used by one thread at a time. Move-only. The memory
  // outlives it.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept
        : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(memory_, other.memory_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Share() {
      if (memory_ != nullptr) memory_->used_ -= bytes_;
    }

    uint64_t bytes() const { return bytes_; }
    // False, and nothing has changed, where there is no room for so much.
    bool resize(uint64_t bytes) {
      if (memory_ == nullptr) return bytes == 0;
      if (bytes > bytes_ && !memory_->add(bytes - bytes_)) return false;
      if (bytes < bytes_) memory_->used_ -= bytes_ - bytes;
      bytes_ = bytes;
      return true;
    }
    bool grow(uint64_t bytes) { return resize(bytes_ + bytes); }

   private:
    friend class RequestMemory;
    Share(RequestMemory& memory, uint64_t bytes) : memory_(&memory), bytes_(bytes) {}

    RequestMemory* memory_ = nullptr;
    uint64_t bytes_ = 0;
  };

  // nullopt: there is no room.
  std::optional<Share> take(uint64_t bytes) {
    if (!add(bytes)) return std::nullopt;
    return Share(*this, bytes);
  }
  uint64_t bytes() const { return bytes_; }
  uint64_t used() const { return used_; }
  // Before there is a budget it is little.
  void enlarge(uint64_t bytes) { bytes_ = std::max<uint64_t>(bytes, bytes_); }

 private:
  bool add(uint64_t bytes) {
    uint64_t used = used_;
    do {
      if (bytes > bytes_ - used) return false;
    } while (!used_.compare_exchange_weak(used, used + bytes));
    return true;
  }

  std::atomic<uint64_t> bytes_;
  std::atomic<uint64_t> used_{0};
};

}  // namespace sluice
