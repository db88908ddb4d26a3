// The device of the tests of CUDA kernels, in the implementation that they are linked with: the
// emulator (on_emulator.cc), or a GPU (tests/gpu/on_gpu.cc), where a launch returns when its work
// is done. The host touches no memory of the device on either: each piece has a copy on the host,
// and stream() brings what was written there to the device before a launch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/cuda/gemm.h"

namespace sluice::test {

// Memory of the device, exactly as large as asked for.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual std::byte* data() const = 0;
  virtual void upload(std::span<const std::byte> from) = 0;
  virtual void download(std::span<std::byte> to) = 0;
  virtual bool intact() = 0;  // nothing was written around it, as far as can be told
};
std::unique_ptr<DeviceMemory> device_memory(size_t bytes);

// The same with its copy on the host. Holds 0xa5.
class DeviceBytes {
 public:
  explicit DeviceBytes(size_t bytes);
  ~DeviceBytes();
  std::byte* data() const { return memory_->data(); }  // for kernels alone
  std::byte* host() const;                             // what it holds now, until the next launch
  bool intact() const { return memory_->intact(); }

 private:
  friend CUstream_st* stream();
  std::unique_ptr<DeviceMemory> memory_;
  mutable std::vector<std::byte> host_;
  mutable bool on_device_ = false;  // what it holds is there; else on the host
};

// Returns the stream for a launch; each launch asks again.
CUstream_st* stream();

template <class T>
class Buffer {
 public:
  explicit Buffer(size_t count) : bytes_(count * sizeof(T)), count_(count) {}
  explicit Buffer(const std::vector<T>& from) : Buffer(from.size()) {
    std::ranges::copy(from, host());
  }

  T* data() const { return reinterpret_cast<T*>(bytes_.data()); }  // for kernels alone
  T* host() const { return reinterpret_cast<T*>(bytes_.host()); }
  size_t size() const { return count_; }
  T& operator[](size_t i) const { return host()[i]; }
  std::span<T> span() const { return {host(), count_}; }
  std::span<T> on_device() const { return {data(), count_}; }
  std::vector<T> copy() const { return {host(), host() + count_}; }
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
// Hopper, and has products of integers unless that is nothing. On a GPU only "nothing" has an
// effect: otherwise its library decides.
std::unique_ptr<cuda::Gemm> make_gemm(cuda::E4M3Product codes);

// Rows and columns of a weight, and rows of an input (tokens), for a library's products. On a GPU
// those that might go wrong; for the emulator's own loops a small one.
struct ProductSize {
  int64_t rows, cols, tokens;
};
std::vector<ProductSize> product_sizes();

// Allowed difference between a sum of products and one by float32, as a share of its terms: of bf16
// on tensor cores, and of E4M3.
extern const float kSumRounding, kE4M3SumRounding;

}  // namespace sluice::test
