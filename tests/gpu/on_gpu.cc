// The tests of CUDA kernels on a real GPU, where there is one. Each piece of memory is an
// allocation of its own, with bytes around it that nobody may write; with SLUICE_EXACT_MEMORY in
// the environment it ends with the allocation, for compute-sanitizer.
#include <cuda_runtime.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/cublaslt.h"
#include "src/base/error.h"
#include "src/device/cuda/check_cuda.h"
#include "src/device/cuda/cuda_device.h"
#include "tests/kernels/cuda/device.h"

namespace sluice::test {
namespace {

// The library, as on a GPU where it has products of bf16 only.
class OnlyBf16 final : public cuda::Gemm {
 public:
  explicit OnlyBf16(std::unique_ptr<cuda::Gemm> all) : all_(std::move(all)) {}
  bool multiply(const cuda::Bf16Matrix& x, const cuda::Bf16Matrix& w, Tensor y,
                std::span<std::byte> workspace, cuda::Stream stream) override {
    return all_->multiply(x, w, y, workspace, stream);
  }
  cuda::E4M3Product product_of(const cuda::E4M3Matrix&, const cuda::E4M3Matrix&, Tensor) override {
    return cuda::E4M3Product::none;
  }
  bool multiply_e4m3(const cuda::E4M3Matrix&, const cuda::E4M3Matrix&, Tensor, std::span<std::byte>,
                     cuda::Stream) override {
    return false;
  }
  bool multiply_i8(const cuda::I8Matrix&, const cuda::I8Matrix&, int32_t*, std::span<std::byte>,
                   cuda::Stream) override {
    return false;
  }

 private:
  std::unique_ptr<cuda::Gemm> all_;
};

class GpuMemory final : public DeviceMemory {
 public:
  explicit GpuMemory(size_t bytes)
      : bytes_(bytes), guard_(std::getenv("SLUICE_EXACT_MEMORY") == nullptr ? kGuard : 0) {
    void* p = nullptr;
    const size_t all = std::max<size_t>(bytes_ + 2 * guard_, 1);
    cuda::check_cuda(cudaMalloc(&p, all), "memory for a test");
    begin_ = static_cast<std::byte*>(p);
    cuda::check_cuda(cudaMemset(begin_, kAround, all), "memory for a test");
  }
  ~GpuMemory() override {
    EXPECT_TRUE(intact()) << "something was written around a buffer of " << bytes_ << " bytes";
    cudaFree(begin_);
  }
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;
  std::byte* data() const override { return begin_ + guard_; }
  void upload(std::span<const std::byte> from) override { copy(data(), from.data(), from.size()); }
  void download(std::span<std::byte> to) override { copy(to.data(), data(), to.size()); }
  bool intact() override { return is_around(begin_) && is_around(data() + bytes_); }

 private:
  static constexpr size_t kGuard = 256;  // what cudaMalloc aligns to
  static constexpr int kAround = 0xff;   // NaN of every type

  static void copy(std::byte* to, const std::byte* from, size_t bytes) {
    cuda::check_cuda(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "copying for a test");
  }
  bool is_around(const std::byte* at) const {
    std::vector<std::byte> there(guard_);
    // Not checked: after a fault in a kernel, which a launch has thrown, nothing can be copied.
    if (cudaMemcpy(there.data(), at, guard_, cudaMemcpyDefault) != cudaSuccess) return true;
    return std::ranges::all_of(there, [](std::byte b) { return b == std::byte{kAround}; });
  }

  size_t bytes_, guard_;
  std::byte* begin_ = nullptr;
};

}  // namespace

std::unique_ptr<DeviceMemory> device_memory(size_t bytes) {
  return std::make_unique<GpuMemory>(bytes);
}

void order_threads(int) {}
int64_t launches() { return 0; }

std::unique_ptr<cuda::Gemm> make_gemm(cuda::E4M3Product codes) {
  std::unique_ptr<cuda::Gemm> all = cuda::load_cublaslt();
  if (all == nullptr) fail(ErrorKind::runtime, "this test needs libcublasLt, which is not found");
  if (codes != cuda::E4M3Product::none) return all;
  return std::make_unique<OnlyBf16>(std::move(all));
}

// Long sums of few rows, where cuBLASLt has offered products of codes that it then refused, and
// numbers of rows on both sides of a whole tile.
std::vector<ProductSize> product_sizes() {
  std::vector<ProductSize> sizes;
  for (int64_t cols : {9216, 14336})
    for (int64_t tokens : {17, 31, 64, 127, 128, 256, 257}) sizes.push_back({512, cols, tokens});
  return sizes;
}

// Tensor cores cut what they add to some bits more than float32 has; those of E4M3 on Hopper to 14
// bits until a part of the sum is done.
const float kSumRounding = 8e-6f, kE4M3SumRounding = 1e-3f;

// cuBLASLt's manual: products of E4M3 from Ada on, with scales of rows and of blocks on Hopper.
TEST(GpuGemm, MultipliesCodesAsTheGpuCan) {
  const int capability = cuda::open_device(0)->info().compute_capability;
  const std::unique_ptr<cuda::Gemm> gemm = make_gemm(cuda::E4M3Product::scaled);
  const Buffer<uint8_t> codes(256 * 512);
  const Buffer<float> scales(1024);
  const DeviceMatrix y(32, 256, 0);
  for (bool by_block : {false, true}) {
    const cuda::E4M3Product product =
        gemm->product_of({codes.data(), 32, 512, scales.data(), by_block},
                         {codes.data(), 256, 512, scales.data(), by_block}, y.tensor());
    const bool some = product != cuda::E4M3Product::none;
    EXPECT_TRUE(some || by_block || capability < 89);
    EXPECT_TRUE(!some || capability >= 89);
    EXPECT_TRUE(product == cuda::E4M3Product::scaled || capability != 90) << by_block;
  }
}

}  // namespace sluice::test

int main(int argc, char** argv) {
  // CUDA C++ Programming Guide, "CUDA Environment Variables"; read when CUDA is first used.
  setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
  testing::InitGoogleTest(&argc, argv);
  try {
    sluice::cuda::open_device(0);
  } catch (const sluice::Error& e) {
    fmt::print("on_gpu.cc: Skipped\n{}\n[  SKIPPED ] all tests\n", e.what());  // as GTest does
    return 0;
  }
  return RUN_ALL_TESTS();
}
