// A few rows of x times a weight in groups, by tensor cores: blocks of GGUF, and runs of floats or
// of places in a table, decoded in registers (unit_codes.cuh).
#include <algorithm>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/grouped.h"
#include "kernels/cuda/unit_codes.cuh"

namespace sluice::cuda {
namespace {

constexpr int kMostWarps = 8;
constexpr int kRows = static_cast<int>(kMmaRows), kTokens = static_cast<int>(kMmaTokens);
constexpr int kUnits = kUnitSpan;  // that a warp takes at a time

struct UnitArgs {
  Planes planes;
  const float* bias;
  const uint16_t* x;  // [tokens][x_cols], in the order of units
  float* y;
  int64_t y_stride;
  int rows, units, x_cols, tokens;
};

// Scales and minimums of a lane's two rows, of units t and t + 4 of eight: others are asked for
// theirs.
template <class U>
struct Factors {
  float scales[2][2][U::kGroups];
  float mins[2][2][U::kGroups];
  // One of unit u, which a loop may count.
  __device__ static float of(const float (&all)[2][2][U::kGroups], int row, int u, int group) {
    return u < 4 ? all[row][0][group] : all[row][1][group];
  }
};

template <class U>
__device__ Factors<U> factors_of(const U (&rows)[2], int first, int units) {
  const int t = static_cast<int>(threadIdx.x) % 4;
  Factors<U> f = {};
  if (first >= units) return f;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    if (!U::kWhole && first + t + 4 * k >= units) continue;
#pragma unroll
    for (int r = 0; r < 2; ++r) rows[r].factors(first, t + 4 * k, f.scales[r][k], f.mins[r][k]);
  }
  return f;
}

// A lane's codes of some units, all asked for before the first is used.
template <int kCount>
struct Quads {
  uint32_t at[kCount][2][2];  // of each row those of columns 4t and 16 + 4t
};

// Returns those of units from `begin` on of the span that begins with `first`.
template <class U>
__device__ Quads<U::kAhead> quads_of(const U (&rows)[2], int first, int begin, int units) {
  const int t = static_cast<int>(threadIdx.x) % 4;
  Quads<U::kAhead> quads;
#pragma unroll
  for (int n = 0; n < U::kAhead; ++n) {
    const int u = U::kWhole || first + begin + n < units ? begin + n : 0;  // or any
#pragma unroll
    for (int i = 0; i < 4; ++i)
      quads.at[n][i / 2][i % 2] = rows[i / 2].quad(first, u, i % 2 * 16 + 4 * t);
  }
  return quads;
}

template <int kTiles>
using Sums = float[kTiles][4];

// total += a group's sums by its scales, less those of x by its minimums.
template <class U, int kTiles>
__device__ void add_group(const Factors<U>& f, int u, int group, const Sums<kTiles>& sums,
                          const Sums<kTiles>& inputs, Sums<kTiles>& total) {
  const int from = static_cast<int>(threadIdx.x) % 32 / 4 * 4 + u % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float scale = __shfl_sync(0xffffffff, f.of(f.scales, r, u, group), from);
    float min = 0;
    if constexpr (U::kMins) min = __shfl_sync(0xffffffff, f.of(f.mins, r, u, group), from);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        total[tile][i] = fmaf(sums[tile][i], scale, total[tile][i]);
        if constexpr (U::kMins) total[tile][i] = fmaf(-inputs[tile][i], min, total[tile][i]);
      }
    }
  }
}

// total += the products of unit `first` + u.
template <class U, int kTiles>
__device__ void multiply_unit(const UnitArgs& a, const uint32_t (&quads)[2][2], const Factors<U>& f,
                              int first, int u, uint16_t table, Sums<kTiles>& total) {
  constexpr uint32_t kOnes[4] = {0x3f803f80, 0x3f803f80, 0x3f803f80, 0x3f803f80};
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  Vec<uint32_t, 4> x[kTiles];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    const int token = tile * kTokens + g;
    x[tile] =
        load_x(a.x + int64_t{token} * a.x_cols + (first + u) * kUnitCols + t * 8, token < a.tokens);
  }
  Sums<kTiles> sums = {}, inputs = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    uint32_t fa[4];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t codes = quads[r][half];
      fa[r] = unit_pair<U::kFields, U::kMinus>(codes & 0x00ff00ff, table);
      fa[2 + r] = unit_pair<U::kFields, U::kMinus>(codes >> 8 & 0x00ff00ff, table);
    }
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const uint32_t fb[2] = {x[tile].at[2 * half], x[tile].at[2 * half + 1]};
      mma_bf16(sums[tile], fa, fb);
      if constexpr (U::kMins) mma_bf16(inputs[tile], kOnes, fb);
    }
    if (U::kGroups == 1 && half == 0) continue;
    add_group<U, kTiles>(f, u, U::kGroups == 1 ? 0 : half, sums, inputs, total);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[tile][i] = inputs[tile][i] = 0;
    }
  }
}

// A block takes 16 rows; its warps take eight units in turn. One block has the registers of two
// where tokens are many, or codes are decoded one by one.
template <class U, int kTiles>
__global__ void __launch_bounds__(kMostWarps * 32, kTiles == 2 || U::kAhead == 1 ? 1 : 2)
    units_mma_kernel(UnitArgs a) {
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(blockIdx.x) * kRows + lane / 4;
  const U rows[2] = {U(a.planes, row < a.rows ? row : a.rows - 1),
                     U(a.planes, row + 8 < a.rows ? row + 8 : a.rows - 1)};
  uint16_t table = 0;
  if constexpr (U::kFields == Fields::own) table = float_to_bf16(a.planes.values[lane % 16]);
  int first = warp * kUnits;
  Factors<U> f = factors_of(rows, first, a.units);
  wait_for_earlier();
  Sums<kTiles> total = {};
  for (; first < a.units; first += warps * kUnits) {
    const Factors<U> next = factors_of(rows, first + warps * kUnits, a.units);
    // Codes that are decoded one by one leave no registers for those of another unit.
#pragma unroll(U::kAhead == 1 ? 1 : kUnits)
    for (int begin = 0; begin < kUnits; begin += U::kAhead) {
      const Quads<U::kAhead> quads = quads_of(rows, first, begin, a.units);
#pragma unroll
      for (int n = 0; n < U::kAhead; ++n) {
        // All lanes leave. What is behind it is not asked for before.
        if ((!U::kWhole || U::kAhead == 1) && first + begin + n >= a.units) break;
        multiply_unit<U, kTiles>(a, quads.at[n], f, first, begin + n, table, total);
      }
    }
    f = next;
  }
  float* partial = &shared_memory<float>();
  leave_partial<kTiles>(total, partial);
  __syncthreads();
  add_partial<kTiles>(partial, [&](int r, int token, float sum) {
    const int output = static_cast<int>(blockIdx.x) * kRows + r;
    if (output >= a.rows || token >= a.tokens) return;
    if (a.planes.row_scales != nullptr) sum *= a.planes.row_scales[output];
    a.y[token * a.y_stride + output] = a.bias == nullptr ? sum : sum + a.bias[output];
  });
}

struct PlaceArgs {
  const float* x;
  int64_t x_stride;
  const int32_t* order;  // or null
  int cols, to_cols;
  UnitOrder places;
  uint16_t* to;
};

// x in the weight's order of columns and of its units, rounded to bf16, with zeros behind it.
__global__ void __launch_bounds__(kElementwiseThreads) place_kernel(PlaceArgs a) {
  wait_for_earlier();
  const int at = static_cast<int>(elementwise_column(1));
  if (at >= a.to_cols) return;
  const int of_unit = at % kUnitCols;
  const int c = at - of_unit + unit_column(a.places, of_unit / 8, of_unit % 8);
  float value = 0;
  if (c < a.cols) value = a.x[blockIdx.x * a.x_stride + (a.order == nullptr ? c : a.order[c])];
  a.to[int64_t{blockIdx.x} * a.to_cols + at] = float_to_bf16(value);
}

template <class Kind>
void launch_units(UnitArgs args, PlaceArgs places, Stream stream) {
  using U = Units<Kind>;
  places.places = U::kOrder;
  launch_early(place_kernel, elementwise_launch(args.tokens, places.to_cols, 1), stream, places);
  const uint32_t warps = block_threads(ceil_div(args.units, kUnits) * 32, kMostWarps * 32) / 32;
  const int tiles = args.tokens > kTokens ? 2 : 1;
  const Launch at{{static_cast<uint32_t>(ceil_div(args.rows, kRows))},
                  {warps * 32},
                  warps * static_cast<uint32_t>(tiles * kTokens * kRows * 4)};
  tiles == 1 ? launch_early(units_mma_kernel<U, 1>, at, stream, args)
             : launch_early(units_mma_kernel<U, 2>, at, stream, args);
}

// Columns of a unit's smallest group in a format of runs; 0: it has no units.
int least_group(const WeightFormat& f) {
  if (f.table == CodeTable::own && f.bits == 4) return kUnitCols;
  if (f.table == CodeTable::e4m3) return kUnitCols;
  return f.table == CodeTable::e2m1 ? kUnitCols / 2 : 0;
}

}  // namespace

bool gemv_units_fits(const Weight& w) {
  if (is_block(w.format.dtype)) return true;
  const int least = least_group(w.format);
  return w.format.scales == ScaleKind::grouped && least > 0 && w.format.scale_cols % least == 0;
}

void gemv_units(Tensor x, const Weight& w, const float* bias, std::byte* workspace, Tensor y,
                Stream stream) {
  check(gemv_units_fits(w) && x.cols == w.cols && x.rows == y.rows && x.rows <= 2 * kMmaTokens,
        "operands that units fit");
  const int64_t cols = ceil_div(x.cols, kMmaCols) * kMmaCols;
  auto* placed = reinterpret_cast<uint16_t*>(workspace);
  const UnitArgs args{planes_of(w),
                      bias,
                      placed,
                      y.row<float>(0),
                      y.stride,
                      static_cast<int>(w.rows),
                      static_cast<int>(ceil_div(w.cols, kUnitCols)),
                      static_cast<int>(cols),
                      static_cast<int>(y.rows)};
  const PlaceArgs places{x.row<float>(0),        x.stride, w.order, static_cast<int>(w.cols),
                         static_cast<int>(cols), {},       placed};
  if (with_block(w.format.dtype,
                 [&]<class Kind>(Kind) { launch_units<Kind>(args, places, stream); }))
    return;
  switch (w.format.table) {
    case CodeTable::e2m1:
      return launch_units<RunKind<CodeTable::e2m1, 2>>(args, places, stream);
    case CodeTable::e4m3:
      return launch_units<RunKind<CodeTable::e4m3, 1>>(args, places, stream);
    default:
      return launch_units<RunKind<CodeTable::own, 1>>(args, places, stream);
  }
}

}  // namespace sluice::cuda
