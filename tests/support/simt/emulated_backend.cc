#include "tests/support/simt/emulated_backend.h"

#include "kernels/cuda/cuda_backend.h"
#include "quant/float8.h"

namespace sluice::simt {
namespace {

class EmulatedGemm final : public cuda::Gemm {
 public:
  explicit EmulatedGemm(cuda::E4M3Product codes) : codes_(codes) {}
  bool multiply(const cuda::Bf16Matrix& x, const cuda::Bf16Matrix& w, Tensor y,
                std::span<std::byte> workspace, cuda::Stream stream) override {
    check(workspace.size() >= cuda::kGemmWorkspace, "gemm: workspace");
    check(x.cols == w.cols && y.rows == x.rows && y.cols == w.rows, "gemm: y = x w^T");
    put(stream, [=] {
      multiply_floats(x, w, y, [](const auto& m, int64_t r, int64_t c) {
        return bf16_to_float(m.data[r * m.cols + c]);
      });
    });
    return true;
  }

  cuda::E4M3Product product_of(const cuda::E4M3Matrix& x, const cuda::E4M3Matrix& w,
                               Tensor y) override {
    check(y.rows == x.rows && y.cols == w.rows, "gemm: y = x w^T");
    check_vectors(x, w, y.data);
    check(x.by_block == w.by_block && (!x.by_block || (x.cols % 128 == 0 && x.rows % 4 == 0)),
          "gemm: whole blocks, and fours of rows");
    const bool possible = !x.by_block || codes_ == cuda::E4M3Product::scaled;
    return possible ? codes_ : cuda::E4M3Product::none;
  }

  bool multiply_e4m3(const cuda::E4M3Matrix& x, const cuda::E4M3Matrix& w, Tensor y,
                     std::span<std::byte> workspace, cuda::Stream stream) override {
    check(workspace.size() >= cuda::kGemmWorkspace, "gemm: workspace");
    const cuda::E4M3Product codes = product_of(x, w, y);
    check(codes != cuda::E4M3Product::none, "gemm: no products of E4M3");
    put(stream, [=] {
      multiply_floats(x, w, y, [&](const cuda::E4M3Matrix& m, int64_t r, int64_t c) {
        float value = e4m3_to_float(m.data[r * m.cols + c]);
        if (codes == cuda::E4M3Product::scaled) value *= scale(m, m.data == x.data, r, c);
        return value;
      });
    });
    return true;
  }

  bool multiply_i8(const cuda::I8Matrix& x, const cuda::I8Matrix& w, int32_t* y,
                   std::span<std::byte> workspace, cuda::Stream stream) override {
    check(workspace.size() >= cuda::kGemmWorkspace, "gemm: workspace");
    check_vectors(x, w, y);
    if (codes_ == cuda::E4M3Product::none) return false;
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
  // cuBLASLt's manual, "cublasLtMatmul()": E4M3 in 16s; integers in 4s, pointers of 16 bytes to be
  // fast.
  template <class Matrix>
  static void check_vectors(const Matrix& x, const Matrix& w, const void* y) {
    auto aligned = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
    check(x.cols == w.cols && x.cols % 16 == 0 && w.rows % 16 == 0, "gemm: whole vectors");
    check(aligned(x.data) && aligned(w.data) && aligned(y), "gemm: aligned matrices");
  }
  template <class Matrix, class Element>
  static void multiply_floats(const Matrix& x, const Matrix& w, Tensor y, Element element) {
    for (int64_t n = 0; n < y.rows; ++n) {
      for (int64_t m = 0; m < y.cols; ++m) {
        float sum = 0;
        for (int64_t k = 0; k < x.cols; ++k) sum += element(x, n, k) * element(w, m, k);
        y.row<float>(n)[m] = sum;
      }
    }
  }
  // cuBLASLt's manual, "1D and 2D Block Scaling Modes for FP8 Data Types".
  static float scale(const cuda::E4M3Matrix& m, bool input, int64_t row, int64_t col) {
    if (!m.by_block) return m.scales[row];
    const int64_t block = col / 128, blocks = m.cols / 128;
    if (input) return m.scales[block * m.rows + row];
    return m.scales[row / 128 * ((blocks + 3) / 4 * 4) + block];
  }
  static void put(cuda::Stream stream, const std::function<void()>& work) {
    stream == nullptr ? work() : stream->owner->put(stream, work);
  }
  cuda::E4M3Product codes_;
};

}  // namespace

std::unique_ptr<cuda::Gemm> make_emulated_gemm(cuda::E4M3Product codes) {
  return std::make_unique<EmulatedGemm>(codes);
}

std::unique_ptr<Backend> make_emulated_backend(const DeviceOptions& options) {
  return cuda::make_backend(make_emulated_device(options), make_emulated_gemm());
}

}  // namespace sluice::simt
