#include "tests/support/simt/emulated_backend.h"

#include "kernels/cuda/cuda_backend.h"
#include "quant/float8.h"

namespace sluice::simt {
namespace {

class EmulatedGemm final : public cuda::Gemm {
 public:
  explicit EmulatedGemm(bool integers) : integers_(integers) {}
  void multiply(const cuda::Bf16Matrix& x, const cuda::Bf16Matrix& w, Tensor y,
                std::span<std::byte> workspace, cuda::Stream stream) override {
    check(workspace.size() >= cuda::kGemmWorkspace, "gemm: workspace");
    check(x.cols == w.cols && y.rows == x.rows && y.cols == w.rows, "gemm: y = x w^T");
    auto work = [=] {
      for (int64_t n = 0; n < y.rows; ++n) {
        for (int64_t m = 0; m < y.cols; ++m) {
          float sum = 0;
          for (int64_t k = 0; k < x.cols; ++k)
            sum += bf16_to_float(x.data[n * x.cols + k]) * bf16_to_float(w.data[m * w.cols + k]);
          y.row<float>(n)[m] = sum;
        }
      }
    };
    put(stream, work);
  }

  bool multiply_i8(const cuda::I8Matrix& x, const cuda::I8Matrix& w, int32_t* y,
                   std::span<std::byte> workspace, cuda::Stream stream) override {
    check(workspace.size() >= cuda::kGemmWorkspace, "gemm: workspace");
    // cuBLASLt's manual, "cublasLtMatmul()": dimensions of integers in 4s, pointers of 16 bytes to
    // be fast.
    auto aligned = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
    check(x.cols == w.cols && x.cols % 16 == 0 && w.rows % 16 == 0, "gemm: whole vectors");
    check(aligned(x.data) && aligned(w.data) && aligned(y), "gemm: aligned matrices");
    if (!integers_) return false;
    put(stream, [=] {
      for (int64_t n = 0; n < x.rows; ++n) {
        for (int64_t m = 0; m < w.rows; ++m) {
          int32_t sum = 0;
          for (int64_t k = 0; k < x.cols; ++k)
            sum += int32_t{x.data[n * x.cols + k]} * w.data[m * w.cols + k];
          y[n * w.rows + m] = sum;
        }
      }
    });
    return true;
  }

 private:
  static void put(cuda::Stream stream, const std::function<void()>& work) {
    stream == nullptr ? work() : stream->owner->put(stream, work);
  }
  bool integers_;
};

}  // namespace

std::unique_ptr<cuda::Gemm> make_emulated_gemm(bool integers) {
  return std::make_unique<EmulatedGemm>(integers);
}

std::unique_ptr<Backend> make_emulated_backend(const DeviceOptions& options) {
  return cuda::make_backend(make_emulated_device(options), make_emulated_gemm());
}

}  // namespace sluice::simt
