// A few rows of x times a weight of grouped codes, by tensor cores, as gemv_panels.cu does it
// (grouped_fragments.cuh).
#include <algorithm>
#include <bit>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/grouped_fragments.cuh"

namespace sluice::cuda {
namespace {

constexpr int kMostWarps = 8;
constexpr int kCols = static_cast<int>(kMmaCols), kRows = static_cast<int>(kMmaRows);

struct GroupedArgs {
  GroupedPlanes w;
  GroupedInput x;
  const float* bias;
  float* y;
  int64_t y_stride;
};

// A block takes 16 rows; its warps take 128 columns in turn, of which the next are on their way
// while some are multiplied.
// One block has the registers of two where codes have 8 bits and tokens are many.
template <int kBits, bool kOneGroup, bool kE2M1, int kTiles>
__global__ void __launch_bounds__(kMostWarps * 32, kBits == 8 && kTiles == 2 ? 1 : 2)
    grouped_mma_kernel(GroupedArgs a) {
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const int row = static_cast<int>(blockIdx.x) * kRows + g;
  const int step = warps * kCols;
  int col = warp * kCols;
  Part<kBits, kOneGroup> parts[2], next[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) load_part(a.w, row + half * 8, col, t, parts[half]);
  wait_for_earlier();
  float total[kTiles][4] = {};
  for (; col < a.w.cols; col += step) {
#pragma unroll
    for (int half = 0; half < 2; ++half) load_part(a.w, row + half * 8, col + step, t, next[half]);
    multiply_parts<kBits, kOneGroup, kE2M1, kTiles>(a.w, a.x, parts, col, total);
    parts[0] = next[0];
    parts[1] = next[1];
  }
  float* partial = &shared_memory<float>();
  leave_partial<kTiles>(total, partial);
  __syncthreads();
  add_partial<kTiles>(partial, [&](int r, int token, float sum) {
    const int output = static_cast<int>(blockIdx.x) * kRows + r;
    if (output >= a.w.rows || token >= a.x.tokens) return;
    a.y[token * a.y_stride + output] = a.bias == nullptr ? sum : sum + a.bias[output];
  });
}

template <int kBits, bool kOneGroup, bool kE2M1>
void launch_grouped(const GroupedArgs& args, Stream stream) {
  const uint32_t warps = block_threads(ceil_div(args.w.cols, kMmaCols) * 32, kMostWarps * 32) / 32;
  const int tiles = args.x.tokens > kMmaTokens ? 2 : 1;
  const Launch at{{static_cast<uint32_t>(ceil_div(args.w.rows, kMmaRows))},
                  {warps * 32},
                  warps * static_cast<uint32_t>(tiles * kMmaTokens * kMmaRows * 4)};
  if (tiles == 1) {
    launch_early(grouped_mma_kernel<kBits, kOneGroup, kE2M1, 1>, at, stream, args);
  } else {
    launch_early(grouped_mma_kernel<kBits, kOneGroup, kE2M1, 2>, at, stream, args);
  }
}

struct GatherArgs {
  const float* x;
  int64_t x_stride;
  const int32_t* order;
  int cols, to_cols;
  uint16_t* to;
};

// x in the weight's order of columns, rounded to bf16.
__global__ void __launch_bounds__(kElementwiseThreads) gather_kernel(GatherArgs a) {
  const int c = static_cast<int>(elementwise_column(1));
  if (c >= a.to_cols) return;
  const float value = c < a.cols ? a.x[blockIdx.x * a.x_stride + a.order[c]] : 0.0f;
  a.to[int64_t{blockIdx.x} * a.to_cols + c] = float_to_bf16(value);
}

void round_rows(Tensor x, const Weight& w, Bf16Rows to, Stream stream) {
  if (w.order == nullptr) return round_rows_bf16(x, to, stream);
  const GatherArgs args{x.row<float>(0),           x.stride, w.order, static_cast<int>(w.cols),
                        static_cast<int>(to.cols), to.data};
  launch(gather_kernel, elementwise_launch(x.rows, to.cols, 1), stream, args);
}

}  // namespace

bool gemv_grouped_fits(const Weight& w) {
  const int bits = w.format.bits;
  const WeightFormat& f = w.format;
  const bool numbers =
      f.scale_type == DType::f32 || f.scale_type == DType::f16 || f.scale_type == DType::bf16;
  const bool integers = f.table == CodeTable::integers && numbers && f.zero_type == DType::u8 &&
                        (bits == 2 || bits == 3 || bits == 4 || bits == 8);
  const bool floats = f.table == CodeTable::e2m1 && bits == 4 && f.scale_type == DType::f8_e8m0;
  return f.scales == ScaleKind::grouped && (integers || floats) && f.outer == Outer::none &&
         f.scale_cols % kRunCols == 0 && reinterpret_cast<uintptr_t>(w.data) % 16 == 0;
}

GroupedPlanes grouped_planes(const Weight& w) {
  GroupedPlanes planes{};
  planes.codes = reinterpret_cast<const uint32_t*>(w.data);
  planes.scales = w.group_scales;
  planes.zeros = reinterpret_cast<const uint8_t*>(w.zeros);
  planes.scale_type = w.format.scale_type;
  planes.zero_base = w.format.zero_base;
  planes.row_words = static_cast<int>(grouped_row_bytes(w.format, w.cols) / 4);
  planes.groups = static_cast<int>(groups_of(w.format, w.cols));
  planes.group_cols = static_cast<int>(std::min(group_cols(w.format), w.cols));
  planes.group_shift = std::has_single_bit(static_cast<uint32_t>(planes.group_cols))
                           ? std::countr_zero(static_cast<uint32_t>(planes.group_cols))
                           : -1;
  planes.rows = static_cast<int>(w.rows);
  planes.cols = static_cast<int>(w.cols);
  return planes;
}

void gemv_grouped(Tensor x, const Weight& w, const float* bias, std::byte* workspace, Tensor y,
                  Stream stream) {
  check(gemv_grouped_fits(w) && x.cols == w.cols && x.rows == y.rows && x.rows <= 2 * kMmaTokens,
        "operands that fragments fit");
  const Bf16Rows rounded{
      reinterpret_cast<uint16_t*>(workspace), x.rows, ceil_div(x.cols, kMmaCols) * kMmaCols, {}};
  round_rows(x, w, rounded, stream);
  const GroupedArgs args{grouped_planes(w),
                         {rounded.data, static_cast<int>(rounded.cols), static_cast<int>(y.rows)},
                         bias,
                         y.row<float>(0),
                         y.stride};
  if (w.format.table == CodeTable::e2m1) return launch_grouped<4, false, true>(args, stream);
  const bool one_group = args.w.group_cols % kMmaCols == 0 || args.w.groups == 1;
  auto launch_bits = [&]<int kBits>(Constant<kBits>) {
    one_group ? launch_grouped<kBits, true, false>(args, stream)
              : launch_grouped<kBits, false, false>(args, stream);
  };
  switch (w.format.bits) {
    case 2:
      return launch_bits(Constant<2>{});
    case 3:
      return launch_bits(Constant<3>{});
    case 4:
      return launch_bits(Constant<4>{});
    default:
      return launch_bits(Constant<8>{});
  }
}

}  // namespace sluice::cuda
