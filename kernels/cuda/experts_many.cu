// Experts of many rows: a block multiplies a tile of one expert's pairs by some of its weight's
// rows, by tensor cores, as the tiles of x and of the weight come by in shared memory, some on
// their way while one is multiplied. Codes are decoded to bf16 between. A sum is over all columns
// in order.
#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/expert_matrix.cuh"
#include "kernels/cuda/grouped_fragments.cuh"
#include "kernels/cuda/panels.cuh"

namespace sluice::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kDepth = static_cast<int>(kExpertDepth);
constexpr int kOutputs = 128;  // rows of the weight that a block has
constexpr int kStages = 3;
constexpr int kWarpOutputs = 32;  // of a warp: four side by side, two one below the other
constexpr int kChunk = 8;         // elements of one copy
constexpr int kChunks = kDepth / kChunk;

// The chunks of a row are in an order of its own, so that those of eight rows lie in all banks.
template <int kRows>
struct alignas(16) Stage {
  uint16_t x[kRows][kDepth];
  uint16_t w[kOutputs][kDepth];
};
__device__ inline uint16_t* chunk_of(uint16_t (&row)[kDepth], int number, int chunk) {
  return &row[(chunk ^ number % kChunks) * kChunk];
}
__device__ inline const uint16_t* chunk_of(const uint16_t (&row)[kDepth], int number, int chunk) {
  return &row[(chunk ^ number % kChunks) * kChunk];
}

// A stage of weights in panels has panels, too, of cells of two columns of bf16. The granules
// of a cell are in an order of its own, so that those of four cells lie in all banks.
constexpr int kStageCells = kDepth / 2;
constexpr int kStagePanels = kOutputs / static_cast<int>(kPanelRows);
template <int kRows>
__device__ const std::byte* granule_of(const Stage<kRows>& s, int panel, int cell, int granule) {
  return reinterpret_cast<const std::byte*>(&s.w[0][0]) +
         ((panel * kStageCells + cell) * 4 + (granule ^ (cell >> 1 & 1) * 2)) * kLaneBytes;
}
template <int kRows>
__device__ std::byte* granule_of(Stage<kRows>& s, int panel, int cell, int granule) {
  return const_cast<std::byte*>(granule_of(std::as_const(s), panel, cell, granule));
}

struct ManyArgs {
  ExpertPlanes w;
  GroupedPlanes grouped;  // of the first expert, of 4-bit codes in groups
  bool e2m1;              // which are floats
  const ExpertTile* tiles;
  const int32_t* rows;  // of x for each pair; null: pairs are its rows
  const uint16_t* x;
  int x_cols;
  const float* x_scales;  // of each row of x, or null
  // Activated columns:
  Gating gating;
  int width, second;
  uint16_t* inner;
  int inner_cols;
  float* out;  // in the place of `inner`; of outputs as they are without it
  int64_t out_stride;
  int first, cols;  // outputs
};

// Returns the weight's row for row r of a block's tile. Of a gate and its factor each warp has 16.
__device__ inline int weight_row(const ManyArgs& a, int r, bool gated, bool& there) {
  const int tile = static_cast<int>(blockIdx.x);
  if (!gated) {
    const int c = tile * kOutputs + r;
    there = c < a.cols;
    return a.first + c;
  }
  const int c = tile * (kOutputs / 2) + r / kWarpOutputs * 16 + r % 16;
  there = c < a.width;
  return r % kWarpOutputs < 16 ? c : a.second + c;
}

// A thread's part of each tile: a chunk of columns, in rows kThreads / kChunks apart.
template <int kRows>
struct Copies {
  static constexpr int kApart = kThreads / kChunks;
  int x[kRows / kApart];  // elements; -1: no such pair
};

template <int kRows>
__device__ Copies<kRows> copies_of(const ManyArgs& a, const ExpertTile& tile) {
  Copies<kRows> c;
#pragma unroll
  for (int i = 0; i < kRows / Copies<kRows>::kApart; ++i) {
    const int r = static_cast<int>(threadIdx.x) / kChunks + i * Copies<kRows>::kApart;
    const int pair = tile.first + r;
    c.x[i] = -1;
    if (r < tile.count) c.x[i] = (a.rows == nullptr ? pair : a.rows[pair]) * a.x_cols;
  }
  return c;
}

template <int kRows>
__device__ void copy_x(const ManyArgs& a, const Copies<kRows>& c, int depth, Stage<kRows>& to) {
  const int d = static_cast<int>(threadIdx.x) % kChunks * kChunk;
#pragma unroll
  for (int i = 0; i < kRows / Copies<kRows>::kApart; ++i) {
    const int r = static_cast<int>(threadIdx.x) / kChunks + i * Copies<kRows>::kApart;
    const bool there = c.x[i] >= 0 && depth < a.x_cols;
    copy_async(chunk_of(to.x[r], r, d / kChunk), there ? a.x + c.x[i] + depth + d : a.x, there);
  }
}

// The weight's part of a tile: granules that are copied as they are, or kept in registers until
// they are decoded.
template <DType kCodes, ScaleKind kScales, int kRows>
struct WeightTile {
  static constexpr bool kCopied = kCodes == DType::bf16;
  static constexpr int kCells = kDepth / kCellCols<kCodes>;  // of a panel
  static constexpr int kOfPanel = kCells * 4;
  static constexpr int kCount = kStagePanels * kOfPanel / kThreads;
  static constexpr bool kBlocks = kScales == ScaleKind::per_block;

  const std::byte* from;  // this thread's granule of the first of its panels, and of its scales
  const float* scales;
  int count, panel_step;  // of its panels; from one to the next
  Vec<uint32_t, 4> held[kCopied ? 1 : kCount];
  float by[kBlocks ? kCount : 1];

  __device__ WeightTile(const ManyArgs& a, int64_t expert, bool gated)
      : from(a.w.codes_of(expert)), scales(nullptr), count(0) {
    constexpr int kPanel = static_cast<int>(kPanelRows);
    // A thread has panels of a gate or of its factor: these take turns, and kApart is even.
    constexpr int kApart = kThreads / kOfPanel;
    bool there = false;
    const int panel = weight_row(a, panel_of(0) * kPanel, gated, there) / kPanel;
    panel_step = gated ? kApart / 2 : kApart;
    from += panel * a.w.panel_bytes + cell() * kCellBytes + granule() * kLaneBytes;
    if constexpr (kBlocks) scales = a.w.scales_of(expert) + int64_t{panel} * blocks(a);
    for (int i = 0; i < kCount; ++i) {
      weight_row(a, panel_of(i) * kPanel, gated, there);
      if (there) ++count;
    }
  }
  __device__ static int blocks(const ManyArgs& a) {
    constexpr int kBlock = static_cast<int>(kScaleBlock);
    return (a.w.cols + kBlock - 1) / kBlock;
  }
  __device__ static int panel_of(int i) {
    return static_cast<int>(threadIdx.x / kOfPanel) + i * (kThreads / kOfPanel);
  }
  __device__ static int cell() { return static_cast<int>(threadIdx.x % kOfPanel / 4); }
  __device__ static int granule() { return static_cast<int>(threadIdx.x % 4); }

  __device__ void begin(const ManyArgs& a, int depth, Stage<kRows>& to) {
    const int first = depth / kCellCols<kCodes>;
    const bool in_row = first + cell() < a.w.cells;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const bool there = in_row && i < count;
      const std::byte* at =
          from + int64_t{i * panel_step} * a.w.panel_bytes + int64_t{first} * kCellBytes;
      if constexpr (kCopied) {
        copy_async(granule_of(to, panel_of(i), cell(), granule()), there ? at : from, there);
      } else {
        // Zero is the code of 128 in i8, and kept so where there is none.
        held[i] = {};
        if (kCodes == DType::i8) held[i] = {{0x80808080, 0x80808080, 0x80808080, 0x80808080}};
        if (there) held[i] = load_as<Vec<uint32_t, 4>>(at);
        if constexpr (kBlocks) {
          const int block = depth / static_cast<int>(kScaleBlock);
          by[i] = there ? scales[int64_t{i * panel_step} * blocks(a) + block] : 0.0f;
        }
      }
    }
  }

  __device__ static uint32_t scaled(uint32_t pair, float by) {
    return bf16x2_from_floats(bf16_to_float(static_cast<uint16_t>(pair)) * by,
                              bf16_to_float(static_cast<uint16_t>(pair >> 16)) * by);
  }

  // Four rows' two pairs of columns each: two granules of bf16.
  __device__ void finish(Stage<kRows>& to) {
    if constexpr (!kCopied) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        Vec<uint32_t, 4> out[2];
#pragma unroll
        for (int f = 0; f < 2; ++f) {
          uint32_t pairs[4];  // of rows 2f and 2f + 1, then their second ones
          byte_fragment<kCodes>(held[i], f, pairs);
#pragma unroll
          for (int j = 0; j < 4; ++j)
            out[j / 2].at[2 * f + j % 2] =
                kBlocks ? scaled(pairs[j], by[kBlocks ? i : 0]) : pairs[j];
        }
#pragma unroll
        for (int pair = 0; pair < 2; ++pair)
          store_as(granule_of(to, panel_of(i), 2 * cell() + pair, granule()), out[pair]);
      }
    }
  }
};

// 4-bit codes in groups: a thread has a run of 32 columns, in one group.
template <int kRows>
struct WeightTile<DType::u8, ScaleKind::grouped, kRows> {
  static constexpr int kWidth = kRunCols;
  static constexpr int kParts = kDepth / kWidth;
  static_assert(kThreads / kParts == kOutputs, "a run for each thread");

  const std::byte* codes;
  const std::byte* scales;
  const uint8_t* zeros;
  int row;  // -1: there is none
  Vec<uint32_t, 4> held;
  uint32_t scale;  // as it is stored
  int zero;
  DType scale_type;
  bool e2m1;

  __device__ WeightTile(const ManyArgs& a, int64_t expert, bool gated)
      : codes(a.w.codes_of(expert)),
        scales(a.grouped.scales + expert * a.w.step),
        zeros(nullptr),
        scale_type(a.grouped.scale_type),
        e2m1(a.e2m1) {
    if (a.grouped.zeros != nullptr) zeros = a.grouped.zeros + expert * a.w.step;
    bool there = false;
    row = weight_row(a, row_of(), gated, there);
    if (!there) row = -1;
  }
  __device__ static int row_of() { return static_cast<int>(threadIdx.x) / kParts; }
  __device__ static int part() { return static_cast<int>(threadIdx.x) % kParts * kWidth; }

  __device__ void begin(const ManyArgs& a, int depth, Stage<kRows>&) {
    const int c = depth + part();
    const GroupedPlanes& w = a.grouped;
    held = {};
    scale = 0;
    zero = 0;
    if (row < 0 || c >= w.cols) return;
    held = load_as<Vec<uint32_t, 4>>(codes + (int64_t{row} * w.row_words + c / kRunCols * 4) * 4);
    const int64_t group = int64_t{row} * w.groups + c / w.group_cols;
    GroupedPlanes mine = w;
    mine.scales = scales;
    scale = mine.scale_bits(group);
    zero = w.zero_base + (zeros == nullptr ? 0 : zeros[group]);
  }

  __device__ void finish(Stage<kRows>& to) {
    const float by = grouped_scale(scale_type, scale);
    const uint32_t minus_zeros = minus_zero<4>(zero, false);
#pragma unroll
    for (int chunk = 0; chunk < kWidth / kChunk; ++chunk) {
      Vec<uint32_t, 4> out;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const uint32_t pair = held.at[chunk] >> (4 * j) & 0x000f000f;
        const uint32_t values = e2m1 ? e2m1_to_bf16(pair) : bf16x2_add(pair | kMagic, minus_zeros);
        out.at[j] = bf16x2_from_floats(bf16_to_float(static_cast<uint16_t>(values)) * by,
                                       bf16_to_float(static_cast<uint16_t>(values >> 16)) * by);
      }
      store_as(chunk_of(to.w[row_of()], row_of(), part() / kChunk + chunk), out);
    }
  }
};

// Fragments of a warp: kParts x 4 of 16 pairs by 8 outputs.
template <int kRows>
struct Sums {
  static constexpr int kParts = kRows / 32;
  float at[kParts][4][4];
};

// A warp's 16 columns from chunk k on, whose outputs are columns of fragment B: of rows, 8
// neighbours of each j; of panels, row j of each granule.
template <int kRows>
__device__ void load_rows(const Stage<kRows>& s, int k, uint32_t (&w)[4][2]) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int output = warp % 4 * kWarpOutputs + lane / 16 * 8 + lane % 8;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    uint32_t both[4];
    ldmatrix_x4(both, chunk_of(s.w[output + j * 16], output, k + lane / 8 % 2));
    w[2 * j][0] = both[0];
    w[2 * j][1] = both[1];
    w[2 * j + 1][0] = both[2];
    w[2 * j + 1][1] = both[3];
  }
}
template <int kRows>
__device__ void load_panels(const Stage<kRows>& s, int k, uint32_t (&w)[4][2]) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int g = lane / 4, panel = warp % 4 * 2 + g / 4;
  // All fours of cells have the same order of granules.
  const std::byte* at = granule_of(s, panel, lane % 4, g % 4) + k * (kChunk / 2) * kCellBytes;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const auto four = load_as<Vec<uint32_t, 4>>(at + half * 4 * kCellBytes);
#pragma unroll
    for (int j = 0; j < 4; ++j) w[j][half] = four.at[j];
  }
}

template <int kRows, bool kPanels>
__device__ void multiply_stage(const Stage<kRows>& s, Sums<kRows>& sums) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = warp / 4 * (kRows / 2) + lane % 16;
  // All four at once would take registers that are not there.
  [[maybe_unused]] constexpr int kUnroll = kPanels && kRows == 128 ? 1 : 4;
#pragma unroll kUnroll
  for (int k = 0; k < kDepth / kChunk; k += 2) {
    uint32_t w[4][2];
    kPanels ? load_panels(s, k, w) : load_rows(s, k, w);
#pragma unroll
    for (int i = 0; i < Sums<kRows>::kParts; ++i) {
      uint32_t x[4];
      ldmatrix_x4(x, chunk_of(s.x[row + i * 16], row, k + lane / 16));
#pragma unroll
      for (int j = 0; j < 4; ++j) mma_bf16(sums.at[i][j], x, w[j]);
    }
  }
}

constexpr int kSumRow = kOutputs + 8;  // behind four rows all banks are used

// Puts the sums into shared memory, [kRows][kSumRow], which no stage needs any more. Lane 4g + t
// has of each fragment pairs g and g + 8, columns 2t and 2t + 1.
template <int kRows, bool kPanels>
__device__ void put_sums(const Sums<kRows>& sums, float* to) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int row = warp / 4 * (kRows / 2) + lane / 4, col = warp % 4 * kWarpOutputs, t = lane % 4;
#pragma unroll
  for (int i = 0; i < Sums<kRows>::kParts; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float* const at = to + (row + i * 16 + half * 8) * kSumRow + col;
      const float(&s)[4][4] = sums.at[i];
      if constexpr (kPanels) {
#pragma unroll
        for (int e = 0; e < 2; ++e)  // column 2t + e is granule (2t + e) % 4 of panel t / 2
          store_as(at + t / 2 * 16 + (t % 2 * 2 + e) * 4,
                   Vec<float, 4>{s[0][2 * half + e], s[1][2 * half + e], s[2][2 * half + e],
                                 s[3][2 * half + e]});
      } else {
#pragma unroll
        for (int j = 0; j < 4; ++j)
          store_as(at + j * 8 + 2 * t, Vec<float, 2>{s[j][2 * half], s[j][2 * half + 1]});
      }
    }
  }
}

constexpr int kGroup = 4;  // outputs that a thread finishes together
using Group = Vec<float, kGroup>;

// Scales and biases that finish the sums of one expert.
struct Finish {
  const float* scales;  // of rows of the weight; null: none
  const float* bias;    // or null
  int rows;             // of the weight
};

// Sums with their scales and biases; `row`: the first one's of the weight.
__device__ inline Group finished(const Finish& f, const float* sums, float x_scale, int row) {
  Group v = load_as<Group>(sums);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    if (row + i >= f.rows) continue;
    v.at[i] *= x_scale;
    if (f.scales != nullptr) v.at[i] *= f.scales[row + i];
    if (f.bias != nullptr) v.at[i] += f.bias[row + i];
  }
  return v;
}

// Stores neighbouring columns of a pair, zeros behind the last one.
__device__ inline void store_inner(const ManyArgs& a, int64_t pair, int c, Group v) {
  if (c >= a.inner_cols) return;
#pragma unroll
  for (int i = 0; i < kGroup; ++i)
    if (c + i >= a.width) v.at[i] = 0;
  if (a.inner != nullptr) {
    store_as(a.inner + pair * a.inner_cols + c,
             Vec<uint32_t, 2>{bf16x2_from_floats(v.at[0], v.at[1]),
                              bf16x2_from_floats(v.at[2], v.at[3])});
    return;
  }
  for (int i = 0; i < kGroup; ++i)
    if (c + i < a.width) a.out[pair * a.out_stride + c + i] = v.at[i];
}

// Finishes the block's sums, kGroup of a pair at a time.
template <ScaleKind kScales, int kRows, bool kInner>
__device__ void store_sums(const ManyArgs& a, const ExpertTile& tile, const float* sums) {
  const bool gated = kInner && a.second > 0;
  const int outputs = gated ? kOutputs / 2 : kOutputs, groups = outputs / kGroup;
  const int first = static_cast<int>(blockIdx.x) * outputs;
  const Finish f{kScales == ScaleKind::per_row ? a.w.scales_of(tile.expert) : nullptr,
                 a.w.bias_of(tile.expert), a.w.rows};
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < tile.count * groups; i += kThreads) {
    const int r = i / groups, c = i % groups * kGroup;
    const int64_t pair = tile.first + r;
    float x_scale = 1;
    if (a.x_scales != nullptr) x_scale = a.x_scales[a.rows == nullptr ? pair : a.rows[pair]];
    const float* from = sums + r * kSumRow + (gated ? c / 16 * kWarpOutputs + c % 16 : c);
    Group v = finished(f, from, x_scale, a.first + first + c);
    if constexpr (kInner) {
      Group factor{{1, 1, 1, 1}};
      if (gated) factor = finished(f, from + 16, x_scale, a.second + first + c);
#pragma unroll
      for (int j = 0; j < kGroup; ++j)
        v.at[j] = gated_value(a.gating, v.at[j], factor.at[j], gated);
      store_inner(a, pair, first + c, v);
    } else {
      if (first + c < a.cols) store_as(a.out + pair * a.out_stride + first + c, v);
    }
  }
}

template <DType kCodes, ScaleKind kScales, int kRows, bool kInner>
__global__ void __launch_bounds__(kThreads, 2) experts_many_kernel(ManyArgs a) {
  wait_for_earlier();
  const ExpertTile tile = a.tiles[blockIdx.y];
  if (tile.expert < 0) return;
  auto* stages = &shared_memory<Stage<kRows>>();
  const Copies<kRows> copies = copies_of<kRows>(a, tile);
  WeightTile<kCodes, kScales, kRows> weight(a, tile.expert, kInner && a.second > 0);
  const int steps = (a.w.cols + kDepth - 1) / kDepth;
  for (int s = 0; s < kStages - 1; ++s) {
    copy_x<kRows>(a, copies, s * kDepth, stages[s]);
    weight.begin(a, s * kDepth, stages[s]);
    weight.finish(stages[s]);
    copies_begun();
  }
  Sums<kRows> sums{};
  const bool has_rows = static_cast<int>(threadIdx.x) / 128 * (kRows / 2) < tile.count;
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    Stage<kRows>& next = stages[(step + kStages - 1) % kStages];
    copy_x<kRows>(a, copies, (step + kStages - 1) * kDepth, next);
    weight.begin(a, (step + kStages - 1) * kDepth, next);
    copies_begun();
    if (has_rows) multiply_stage<kRows, kInPanels<kCodes>>(stages[step % kStages], sums);
    weight.finish(next);
  }
  wait_for_copies<0>();
  __syncthreads();
  float* all = &shared_memory<float>();
  put_sums<kRows, kInPanels<kCodes>>(sums, all);
  __syncthreads();
  store_sums<kScales, kRows, kInner>(a, tile, all);
}

template <bool kInner>
void launch_many(ManyArgs a, int64_t x_rows, const ExpertMatrix& w, const ExpertLists& lists,
                 int64_t tile_cols, Stream stream) {
  a.w = planes_of(w);
  if (is_grouped(w.first.format)) {
    a.grouped = grouped_planes(w.first);
    a.e2m1 = w.first.format.table == CodeTable::e2m1;
  }
  a.tiles = lists.tiles;
  constexpr int64_t kMostGridRows = 65535, kMostElements = std::numeric_limits<int32_t>::max();
  check(x_rows * a.x_cols <= kMostElements, "elements of x that 32 bits count");
  check(a.x_cols % kDepth == 0 && a.x_cols >= w.first.cols, "rows of x in whole depths");
  check(lists.most_tiles <= kMostGridRows, "tiles that one launch has blocks for");
  auto launch_as = [&](auto codes, auto scales) {
    auto with = [&](auto rows) {
      const Launch at{{static_cast<uint32_t>(tile_cols), static_cast<uint32_t>(lists.most_tiles)},
                      {kThreads},
                      static_cast<uint32_t>(kStages * sizeof(Stage<rows()>))};
      launch_early(experts_many_kernel<codes(), scales(), rows(), kInner>, at, stream, a);
    };
    check(lists.tile_rows == 64 || lists.tile_rows == 128, "tiles that the kernels have");
    lists.tile_rows == 64 ? with(Constant<64>{}) : with(Constant<128>{});
  };
  if (is_grouped(w.first.format)) {
    launch_as(Constant<DType::u8>{}, Constant<ScaleKind::grouped>{});
  } else {
    with_expert_format(w.first.format, launch_as);
  }
}

struct AddArgs {
  const float* pairs;
  int64_t pairs_stride;
  const int32_t* places;
  int top_k;
  ExpertOutputs out;
  int64_t cols;
};

__global__ void __launch_bounds__(256) add_experts_kernel(AddArgs a) {
  wait_for_earlier();
  constexpr int kWidth = 4;
  const int64_t c = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * kWidth, row = blockIdx.x;
  if (c >= a.cols) return;
  Vec<float, kWidth> sum = {};
#pragma unroll 8
  for (int i = 0; i < a.top_k; ++i) {
    const int64_t pair = row * a.top_k + i;
    const float weight = a.out.weights[pair];
    const auto by = load_as<Vec<float, kWidth>>(a.pairs + a.places[pair] * a.pairs_stride + c);
    for (int j = 0; j < kWidth; ++j) sum.at[j] += weight * by.at[j];
  }
  const ExpertOutputs& o = a.out;
  if (o.shared != nullptr) {
    const auto more = load_as<Vec<float, kWidth>>(o.shared + row * o.shared_stride + c);
    const float weight =
        o.shared_weights == nullptr ? 1 : o.shared_weights[row * o.shared_weights_stride];
    for (int j = 0; j < kWidth; ++j) sum.at[j] += weight * more.at[j];
  }
  store_as(o.y + row * o.y_stride + c, sum);
}

}  // namespace

void experts_many_up(const Bf16Rows& x, const ExpertWeights& w, const ExpertLists& lists,
                     const ExpertInner& inner, Stream stream) {
  ManyArgs a{};
  a.rows = lists.rows;
  a.x = x.data;
  a.x_cols = static_cast<int>(x.cols);
  a.x_scales = x.scaled ? nullptr : x.scales.at;
  a.gating = gating_of(w);
  a.width = static_cast<int>(w.width);
  a.second = static_cast<int>(w.second);
  a.cols = a.width;
  a.inner = inner.rounded.data;
  a.inner_cols = static_cast<int>(inner.rounded.cols);
  if (inner.unrounded.data != nullptr) {
    a.inner = nullptr;
    a.inner_cols = a.width;
    a.out = inner.unrounded.row<float>(0);
    a.out_stride = inner.unrounded.stride;
  }
  launch_many<true>(a, x.rows, w.up, lists,
                    ceil_div(a.inner_cols, w.second > 0 ? kOutputs / 2 : kOutputs), stream);
}

void experts_many_down(const Bf16Rows& inner, const ExpertWeights& w, const ExpertLists& lists,
                       int64_t first, Tensor out, Stream stream) {
  check(out.cols % kGroup == 0 && out.stride % kGroup == 0, "outputs in groups");
  ManyArgs a{};
  a.x = inner.data;
  a.x_cols = static_cast<int>(inner.cols);
  a.x_scales = inner.scaled ? nullptr : inner.scales.at;
  a.first = static_cast<int>(first);
  a.cols = static_cast<int>(out.cols);
  a.out = out.row<float>(0);
  a.out_stride = out.stride;
  launch_many<false>(a, inner.rows, w.down, lists, ceil_div(out.cols, kOutputs), stream);
}

void add_experts(Tensor out, const ExpertLists& lists, int64_t top_k, const float* weights,
                 const SharedExpert& shared, Tensor y, Stream stream) {
  check(y.cols == out.cols && y.cols % 4 == 0 && y.stride % 4 == 0 && out.stride % 4 == 0,
        "columns in fours");
  const AddArgs a{.pairs = out.row<float>(0),
                  .pairs_stride = out.stride,
                  .places = lists.places,
                  .top_k = static_cast<int>(top_k),
                  .out = expert_outputs(weights, shared, y),
                  .cols = y.cols};
  constexpr uint32_t kBlock = 256;
  launch_early(
      add_experts_kernel,
      {{static_cast<uint32_t>(y.rows), static_cast<uint32_t>(ceil_div(y.cols, kBlock * 4))},
       {kBlock}},
      stream, a);
}

}  // namespace sluice::cuda
