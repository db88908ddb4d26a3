// What the tests of CUDA kernels run on, by whichever of its implementations they are linked with:
// the emulator (on_emulator.cc), or a GPU (tests/gpu/on_gpu.cc), where a launch returns when its
// work is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/gemm.h"

namespace sluice::test {

// Memory that kernels and the host see, exactly as large as asked for. Holds 0xa5.
class DeviceBytes {
 public:
  explicit DeviceBytes(size_t bytes);
  ~DeviceBytes();
  std::byte* data() const;
  bool intact() const;  // nothing was written around it, as far as can be told

 private:
  struct Memory;
  std::unique_ptr<Memory> memory_;
};

template <class T>
class Buffer {
 public:
  explicit Buffer(size_t count) : bytes_(count * sizeof(T)), count_(count) {}
  explicit Buffer(const std::vector<T>& from) : Buffer(from.size()) {
    if (!from.empty()) std::memcpy(data(), from.data(), count_ * sizeof(T));
  }

  T* data() const { return reinterpret_cast<T*>(bytes_.data()); }
  size_t size() const { return count_; }
  T& operator[](size_t i) const { return data()[i]; }
  std::span<T> span() const { return {data(), count_}; }
  std::vector<T> copy() const { return {data(), data() + count_}; }
  bool intact() const { return bytes_.intact(); }

 private:
  DeviceBytes bytes_;
  size_t count_;
};

// Threads take their turns in the `order`th of kThreadOrders ways from now on; at first in the
// 0th. A GPU takes its own each time.
inline constexpr int kThreadOrders = 3;
void order_threads(int order);

int64_t launches();  // since the process began; 0 where nobody counts

// A library that makes at most `codes` of products of E4M3, as on GPUs before Ada, on it and on
// Hopper, and has products of integers unless that is nothing. Of a GPU's own only nothing can be
// asked for: otherwise it makes what it makes.
std::unique_ptr<cuda::Gemm> make_gemm(cuda::E4M3Product codes);

// What the difference of a sum of products to one by float32 may be, as a share of its terms: of
// bf16 on tensor cores, and of E4M3.
extern const float kSumRounding, kE4M3SumRounding;

}  // namespace sluice::test
