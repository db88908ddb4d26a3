// The tests of CUDA kernels on a real GPU, where there is one. Memory is managed: the host sees it
// between launches, which return when their work is done.
#include <cuda_runtime.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

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
  void multiply(const cuda::Bf16Matrix& x, const cuda::Bf16Matrix& w, Tensor y,
                std::span<std::byte> workspace, cuda::Stream stream) override {
    all_->multiply(x, w, y, workspace, stream);
  }
  cuda::E4M3Product product_of(const cuda::E4M3Matrix&, const cuda::E4M3Matrix&, Tensor) override {
    return cuda::E4M3Product::none;
  }
  void multiply_e4m3(const cuda::E4M3Matrix&, const cuda::E4M3Matrix&, Tensor, std::span<std::byte>,
                     cuda::Stream) override {
    check(false, "gemm: no products of E4M3");
  }
  bool multiply_i8(const cuda::I8Matrix&, const cuda::I8Matrix&, int32_t*, std::span<std::byte>,
                   cuda::Stream) override {
    return false;
  }

 private:
  std::unique_ptr<cuda::Gemm> all_;
};

}  // namespace

struct DeviceBytes::Memory {
  std::byte* data = nullptr;
};

DeviceBytes::DeviceBytes(size_t bytes) : memory_(std::make_unique<Memory>()) {
  void* p = nullptr;
  cuda::check_cuda(cudaMallocManaged(&p, std::max<size_t>(bytes, 1)), "managed memory");
  memory_->data = static_cast<std::byte*>(p);
  std::memset(p, 0xa5, bytes);
}
DeviceBytes::~DeviceBytes() { cudaFree(memory_->data); }
std::byte* DeviceBytes::data() const { return memory_->data; }
bool DeviceBytes::intact() const { return true; }  // compute-sanitizer sees what is not

void order_threads(int) {}
int64_t launches() { return 0; }

std::unique_ptr<cuda::Gemm> make_gemm(cuda::E4M3Product codes) {
  std::unique_ptr<cuda::Gemm> all = cuda::load_cublaslt();
  check(all != nullptr, "cuBLASLt is part of the toolkit");
  if (codes != cuda::E4M3Product::none) return all;
  return std::make_unique<OnlyBf16>(std::move(all));
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
