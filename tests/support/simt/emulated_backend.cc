#include "tests/support/simt/emulated_backend.h"

#include "kernels/cuda/cuda_backend.h"
#include "quant/float8.h"

namespace sluice::simt {
namespace {

class EmulatedGemm final : public cuda::Gemm {
 public:
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
    stream == nullptr ? work() : stream->owner->put(stream, work);
  }
};

}  // namespace

std::unique_ptr<cuda::Gemm> make_emulated_gemm() { return std::make_unique<EmulatedGemm>(); }

std::unique_ptr<Backend> make_emulated_backend(const DeviceOptions& options) {
  return cuda::make_backend(make_emulated_device(options), make_emulated_gemm());
}

}  // namespace sluice::simt
