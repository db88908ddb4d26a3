// Weights in panels (quant/format.h) as fragments of tensor cores, 16 bytes a lane.
//
// A cell has a word of each of a panel's 16 rows, and 16 bytes of it, a granule, the words of four
// of them. Two panels have eight granules in each place: lane 4g + t takes number g % 4 of panel
// g / 4, of the cells t, t + 4, ... So a warp's load is 256 neighbouring bytes of either panel, and
// rows 4 (g % 4) + 2f and + 1 of panel g / 4 are rows g and g + 8 of fragment f = 0, 1. Tokens are
// the columns of fragment B, and sums are over k. The numbers of k are free, because a sum does not
// depend on the order of its terms; so x has the columns of a lane's cells side by side.
#pragma once

#include <cstdint>

#include "kernels/cuda/element.h"
#include "kernels/cuda/fragments.cuh"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/simt.h"
#include "quant/matrix_layout.h"
#include "src/base/check.h"

namespace sluice::cuda {

constexpr int kStepLoads = 8;               // of a lane
constexpr int kStepCells = 4 * kStepLoads;  // that a warp takes at a time, a step, of two panels
constexpr int kPairRows = 2 * static_cast<int>(kPanelRows);

template <DType kCodes>
constexpr bool kInPanels = kCodes == DType::bf16 || kCodes == DType::f8_e4m3 || kCodes == DType::i8;
template <DType kCodes>
constexpr int kCellCols = kCodes == DType::bf16 ? 2 : 4;
template <DType kCodes>
constexpr int kStepCols = kStepCells * kCellCols<kCodes>;

// The place of a column of x, in the order of fragments of cells of `cell` columns.
SLUICE_HD inline int64_t fragment_place(int64_t column, int64_t cell) {
  const int64_t of_step = column % (kStepCells * cell), at = of_step / cell;
  return column - of_step + (at % 4 * kStepLoads + at / 4) * cell + of_step % cell;
}

// Codes of a lane: `there` is false where its panel is behind the weight's last.
struct PanelLane {
  const std::byte* codes;  // the granule of cell 0
  bool there;
};
__device__ inline PanelLane panel_lane(const std::byte* panel, bool there) {
  const int g = static_cast<int>(threadIdx.x) % 32 / 4;
  return {panel + g % 4 * kLaneBytes, there};
}

struct Granules {
  Vec<uint32_t, 4> at[kStepLoads];
};
// A step from its first cell on, zeros behind the last of the panel's.
__device__ inline Granules load_granules(const PanelLane& lane, int first, int cells) {
  Granules w;
  const int t = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int l = 0; l < kStepLoads; ++l) {
    const int cell = first + 4 * l + t;
    w.at[l] = {};
    if (lane.there && cell < cells)
      w.at[l] = load_streaming<Vec<uint32_t, 4>>(lane.codes + int64_t{cell} * kCellBytes);
  }
  return w;
}

// Fragment f of load l, of codes of a byte.
template <DType kCodes>
__device__ inline void byte_fragment(const Vec<uint32_t, 4>& w, int f, uint32_t (&a)[4]) {
  if constexpr (kCodes == DType::f8_e4m3) {  // pairs of columns of four rows each
    bytes_to_bf16<kCodes>(w.at[f], a[0], a[1]);
    bytes_to_bf16<kCodes>(w.at[2 + f], a[2], a[3]);
  } else {  // four columns of a row
    bytes_to_bf16<kCodes>(w.at[2 * f], a[0], a[2]);
    bytes_to_bf16<kCodes>(w.at[2 * f + 1], a[1], a[3]);
  }
}

// Sums of a lane: of fragments f, as mma has them.
template <class T, int kTiles>
struct PanelSums {
  T at[kTiles][2][4];
};

// sums += a step times x in the order of fragments; x: this lane's cells of its tokens, `step` rows
// of x apart; tokens: how many there are.
template <DType kCodes, int kTiles>
__device__ inline void multiply_granules(const Granules& w, const uint16_t* x, int64_t step,
                                         int tokens, PanelSums<float, kTiles>& sums) {
  constexpr int kLoads = kCodes == DType::bf16 ? 4 : 2;  // whose columns are a vector of x
  const int g = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
  for (int v = 0; v < kStepLoads / kLoads; ++v) {
    Vec<uint32_t, 4> b[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int token = tile * static_cast<int>(kMmaTokens) + g;
      b[tile] = load_x(x + token * step + v * 8, token < tokens);
    }
#pragma unroll
    for (int f = 0; f < 2; ++f) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        uint32_t a[4];
        if constexpr (kCodes == DType::bf16) {
          const auto &first = w.at[4 * v + 2 * i], &second = w.at[4 * v + 2 * i + 1];
          a[0] = first.at[2 * f];
          a[1] = first.at[2 * f + 1];
          a[2] = second.at[2 * f];
          a[3] = second.at[2 * f + 1];
        } else {
          byte_fragment<kCodes>(w.at[2 * v + i], f, a);
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const uint32_t columns[2] = {b[tile].at[2 * i], b[tile].at[2 * i + 1]};
          mma_bf16(sums.at[tile][f], a, columns);
        }
      }
    }
  }
}

// The same of integers: codes of i8 times such codes, of which a vector has four loads' columns.
template <int kTiles>
__device__ inline void multiply_granules(const Granules& w, const int8_t* x, int64_t step,
                                         int tokens, PanelSums<int, kTiles>& sums) {
  constexpr uint32_t kMiddle = 0x80808080;  // codes without the 128: two's complement
  const int g = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
  for (int v = 0; v < kStepLoads / 4; ++v) {
    Vec<uint32_t, 4> b[kTiles];
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int token = tile * static_cast<int>(kMmaTokens) + g;
      b[tile] = {};
      if (token < tokens) b[tile] = load_as<Vec<uint32_t, 4>>(x + token * step + v * 16);
    }
#pragma unroll
    for (int f = 0; f < 2; ++f) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const auto &first = w.at[4 * v + 2 * i], &second = w.at[4 * v + 2 * i + 1];
        const uint32_t a[4] = {first.at[2 * f] ^ kMiddle, first.at[2 * f + 1] ^ kMiddle,
                               second.at[2 * f] ^ kMiddle, second.at[2 * f + 1] ^ kMiddle};
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          const uint32_t columns[2] = {b[tile].at[2 * i], b[tile].at[2 * i + 1]};
          mma_i8(sums.at[tile][f], a, columns);
        }
      }
    }
  }
}

// This lane's four rows among those of two panels, from a multiple of four on.
__device__ inline int lane_rows() {
  const int g = static_cast<int>(threadIdx.x) % 32 / 4;
  return g / 4 * static_cast<int>(kPanelRows) + g % 4 * 4;
}

// Sums of a lane's four rows with one of its tokens, the first or the second of two.
template <class T>
__device__ inline Vec<T, 4> rows_of_token(const T (&sums)[2][4], int which) {
  return {{sums[0][which], sums[0][2 + which], sums[1][which], sums[1][2 + which]}};
}

// A row of x, rounded to bf16, to shared memory, in the order of fragments, by the whole block;
// zeros behind its columns. change(c, values): what is done to columns from c on before.
constexpr int kStagedColumns = 4;
struct Unchanged {
  __device__ void operator()(int, Vec<float, kStagedColumns>&) const {}
};
template <int kCell, class Change = Unchanged>
__device__ inline void stage_row(const float* from, int cols, uint16_t* to, int to_cols,
                                 Change change = {}) {
  constexpr int kColumns = kStagedColumns;
#pragma unroll 4
  for (int c = static_cast<int>(threadIdx.x) * kColumns; c < to_cols;
       c += static_cast<int>(blockDim.x) * kColumns) {
    Vec<float, kColumns> x = {};
    if (c + kColumns <= cols) {
      x = load_as<Vec<float, kColumns>>(from + c);
    } else {
      for (int i = 0; i < kColumns; ++i)
        if (c + i < cols) x.at[i] = from[c + i];
    }
    if (c < cols) change(c, x);
    const uint32_t low = bf16x2_from_floats(x.at[0], x.at[1]);
    const uint32_t high = bf16x2_from_floats(x.at[2], x.at[3]);
    if constexpr (kCell == 4) {
      store_as(to + fragment_place(c, kCell), Vec<uint32_t, 2>{{low, high}});
    } else {
      store_as(to + fragment_place(c, kCell), Vec<uint32_t, 1>{{low}});
      store_as(to + fragment_place(c + 2, kCell), Vec<uint32_t, 1>{{high}});
    }
  }
}

// The place of an element's code in a panel, in bytes.
template <DType kCodes>
SLUICE_HD int64_t code_place(int64_t row, int64_t column) {
  constexpr int64_t kCols = kCellCols<kCodes>;
  const int64_t r = row % kPanelRows, k = column % kCols, cell = column / kCols * kCellBytes;
  if constexpr (kCodes == DType::f8_e4m3) return cell + r / 4 * 16 + k / 2 * 8 + r % 4 * 2 + k % 2;
  return cell + r * 4 + (kCodes == DType::bf16 ? 2 * k : k);
}

// Bytes from a panel to the next; 0 of plain rows.
inline int64_t panel_step(const Weight& w) {
  if (w.format.layout == WeightLayout::rows) return 0;
  check(layout_of(MatrixLayout::by_codes, w.format) == WeightLayout::packed, "codes in panels");
  return panel_bytes(w.format.dtype, w.cols);
}

// A code of a weight with such a step.
template <DType kCodes>
__device__ inline auto code_at(const void* codes, int64_t panel_bytes, int64_t cols, int64_t row,
                               int64_t col) {
  using Code = typename Element<kCodes>::Code;
  if constexpr (kInPanels<kCodes>) {
    if (panel_bytes > 0)
      return *reinterpret_cast<const Code*>(static_cast<const std::byte*>(codes) +
                                            row / kPanelRows * panel_bytes +
                                            code_place<kCodes>(row, col));
  }
  return static_cast<const Code*>(codes)[row * cols + col];
}

}  // namespace sluice::cuda
