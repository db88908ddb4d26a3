// Device memory for emulated kernels: exactly as large as asked for, with pages around it that
// nobody may touch. The end lies at one of them but for the start's alignment to 16 bytes. The
// bytes between are NaN; writes to them show in intact() and end the process when the buffer goes.
// Under the address sanitizer reads of them are found, too.
#pragma once

#include <cstddef>

namespace sluice::simt {

class GuardedBytes {
 public:
  explicit GuardedBytes(size_t bytes);  // holds 0xa5
  ~GuardedBytes();
  GuardedBytes(GuardedBytes&& other) noexcept;
  GuardedBytes& operator=(GuardedBytes&&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  bool intact() const;  // nothing was written around it
  void repair();        // makes it intact
  void allow(bool on);  // whether anybody may touch it; at first all may

 private:
  std::byte* usable_end() const;

  std::byte* map_ = nullptr;  // behind the first protected page; null: moved from
  size_t mapping_bytes_ = 0;  // both protected pages included
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// "17 bytes behind a buffer of 128 bytes", or an empty text where no buffer is near.
const char* describe_address(const void* address);

}  // namespace sluice::simt
