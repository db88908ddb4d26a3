#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/grouped.h"
#include "kernels/cuda/panels.cuh"
#include "kernels/launch_checks.h"

namespace sluice::cuda {
namespace {

struct EmbedArgs {
  const void* table;
  const float* scales;
  ScaleKind kind;
  const int32_t* ids;
  float* out;
  int64_t cols, out_stride;
  int64_t panel_bytes;  // 0: plain rows
};

template <DType kDType>
__global__ void __launch_bounds__(kElementwiseThreads) embed_kernel(EmbedArgs a) {
  const int64_t c = elementwise_column(1);
  if (c >= a.cols) return;
  const int64_t row = a.ids[blockIdx.x];
  float x = Element<kDType>::decode(code_at<kDType>(a.table, a.panel_bytes, a.cols, row, c));
  if (a.kind == ScaleKind::per_row) x *= a.scales[row];
  if (a.kind == ScaleKind::per_block) {
    x *= a.scales[row / kPanelRows * ceil_div(a.cols, kScaleBlock) + c / kScaleBlock];
  }
  a.out[blockIdx.x * a.out_stride + c] = x;
}

}  // namespace

void embed(const Weight& table, const int32_t* ids, Tensor out, Stream stream) {
  check_same_shape(out, out);
  check(!table.is_meta() && out.cols == table.cols,
        "embed: a resident table, as wide as the output");
  if (out.rows == 0 || out.cols == 0) return;
  if (is_grouped(table.format)) return grouped_embed(table, ids, out, stream);
  const EmbedArgs args{table.data,        table.scales, table.format.scales, ids,
                       out.row<float>(0), table.cols,   out.stride,          panel_step(table)};
  with_dtype<DType::f32, DType::f16, DType::bf16, DType::f8_e4m3, DType::i8>(
      table.format.dtype, [&](auto dtype) {
        launch(embed_kernel<dtype()>, elementwise_launch(out.rows, out.cols, 1), stream, args);
      });
}

}  // namespace sluice::cuda
