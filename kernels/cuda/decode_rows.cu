#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/grouped.h"

namespace sluice::cuda {
namespace {

struct DecodeArgs {
  const uint8_t* codes;
  const float* scales;  // of blocks, of the first row's panel on; or null
  uint16_t* to;
  int64_t cols, scale_cols;
};

template <int kWidth>
__global__ void __launch_bounds__(kElementwiseThreads) decode_kernel(DecodeArgs a) {
  const int64_t c = elementwise_column(kWidth);
  if (c >= a.cols) return;
  const int64_t row = blockIdx.x;
  const auto codes = load_streaming<Vec<uint8_t, kWidth>>(a.codes + row * a.cols + c);
  float scale = 1;
  if (a.scales != nullptr) scale = a.scales[row / kPanelRows * a.scale_cols + c / kScaleBlock];
  Vec<uint16_t, kWidth> out;
  for (int i = 0; i < kWidth; ++i) {
    out.at[i] = float_to_bf16(Element<DType::f8_e4m3>::decode(codes.at[i]) * scale);
  }
  store_as(a.to + row * a.cols + c, out);
}

}  // namespace

void decode_rows(const Weight& w, int64_t first, int64_t rows, uint16_t* to, Stream stream) {
  if (is_grouped(w.format)) return grouped_decode_rows(w, first, rows, to, stream);
  check(w.format.dtype == DType::f8_e4m3 && first % kPanelRows == 0, "E4M3 rows of whole panels");
  const int64_t scale_cols = ceil_div(w.cols, kScaleBlock);
  const bool by_block = w.format.scales == ScaleKind::per_block;
  const DecodeArgs args{reinterpret_cast<const uint8_t*>(w.data) + first * w.cols,
                        by_block ? w.scales + first / kPanelRows * scale_cols : nullptr, to, w.cols,
                        scale_cols};
  // A vector lies within one block of scales.
  constexpr int kWidth = 8;
  const auto start = reinterpret_cast<uintptr_t>(args.codes) | reinterpret_cast<uintptr_t>(to) / 2;
  if (w.cols % kWidth == 0 && start % kWidth == 0) {
    launch(decode_kernel<kWidth>, elementwise_launch(rows, w.cols, kWidth), stream, args);
  } else {
    launch(decode_kernel<1>, elementwise_launch(rows, w.cols, 1), stream, args);
  }
}

}  // namespace sluice::cuda
