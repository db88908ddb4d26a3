// Panels as plain rows: what the vendor's library multiplies.
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/gemv.h"
#include "kernels/cuda/grouped.h"
#include "kernels/cuda/panels.cuh"

namespace sluice::cuda {
namespace {

constexpr int kRowWarps = 8;
constexpr int kLanesAcross = 8;  // of a warp: as many parts of 16 bytes of four times four rows

struct RowsArgs {
  const std::byte* codes;  // the first row's panel
  int64_t panel_bytes;
  const float* scales;  // of blocks, of the same panel on; or null
  int64_t scale_cols;
  std::byte* to;
  int64_t rows, cols;        // that the weight has
  int64_t to_rows, to_cols;  // zeros in the others
};

using Words = Vec<uint32_t, 4>;  // 16 bytes of a row

// Four rows' parts of the cells whose granules a lane has.
template <DType kCodes, class To, int kLoads>
__device__ void transpose(const Words (&w)[kLoads], float scale, Words (&rows)[4]) {
#pragma unroll
  for (int l = 0; l < kLoads; ++l) {
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      if constexpr (kCodes == DType::bf16) {
        rows[r].at[l] = w[l].at[r];
      } else if constexpr (kCodes == DType::i8) {
        rows[r].at[l] = w[l].at[r] ^ 0x80808080;  // two's complement
      } else if constexpr (sizeof(To) == 1) {
        rows[r].at[l] =
            __byte_perm(w[l].at[r / 2], w[l].at[2 + r / 2], r % 2 == 0 ? 0x5410 : 0x7632);
      } else {
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
          uint32_t both[2];
          e4m3_to_bf16(w[l].at[2 * pair + r / 2], both[0], both[1]);
          const uint32_t mine = both[r % 2];
          rows[r].at[2 * l + pair] =
              bf16x2_from_floats(bf16_to_float(static_cast<uint16_t>(mine)) * scale,
                                 bf16_to_float(static_cast<uint16_t>(mine >> 16)) * scale);
        }
      }
    }
  }
}

// x: panels; y: parts of their columns. A warp has 16 rows and 8 parts of 16 bytes of each.
template <DType kCodes, class To>
__global__ void __launch_bounds__(kRowWarps * 32) plain_rows_kernel(RowsArgs a) {
  constexpr int kCols = 16 / static_cast<int>(sizeof(To));  // of a part
  constexpr int kLoads = kCols / kCellCols<kCodes>;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t part = (int64_t{blockIdx.y} * kRowWarps + warp) * kLanesAcross + lane / 4;
  const int64_t first = part * kCols, panel = blockIdx.x;
  if (first >= a.to_cols) return;
  const std::byte* granule = a.codes + panel * a.panel_bytes + lane % 4 * kLaneBytes;
  Words w[kLoads], rows[4];
#pragma unroll
  for (int l = 0; l < kLoads; ++l) {
    const int64_t at = (first / kCellCols<kCodes> + l) * kCellBytes;
    w[l] = {};
    if (at < a.panel_bytes && panel * kPanelRows < a.rows)
      w[l] = load_streaming<Words>(granule + at);
  }
  float scale = 1;
  if (a.scales != nullptr) scale = a.scales[panel * a.scale_cols + first / kScaleBlock];
  transpose<kCodes, To, kLoads>(w, scale, rows);
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int64_t row = panel * kPanelRows + lane % 4 * 4 + r;
    if (row >= a.to_rows) return;
    To* to = reinterpret_cast<To*>(a.to) + row * a.to_cols + first;
    if (row < a.rows && first + kCols <= a.cols && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
      store_as(to, rows[r]);
      continue;
    }
    for (int c = 0; c < kCols && first + c < a.to_cols; ++c) {
      constexpr int kOfWord = 4 / static_cast<int>(sizeof(To));
      const uint32_t word = rows[r].at[c / kOfWord];
      const bool there = row < a.rows && first + c < a.cols;
      to[c] =
          there ? static_cast<To>(word >> (c % kOfWord * 8 * static_cast<int>(sizeof(To)))) : To{};
    }
  }
}

template <DType kCodes, class To>
void launch_rows(const Weight& w, int64_t first, RowsArgs args, Stream stream) {
  check(w.format.layout == WeightLayout::packed && first % kPanelRows == 0, "rows of whole panels");
  args.panel_bytes = panel_bytes(kCodes, w.cols);
  args.codes = w.data + first / kPanelRows * args.panel_bytes;
  args.cols = w.cols;
  constexpr int64_t kBlockCols = kRowWarps * kLanesAcross * 16 / static_cast<int64_t>(sizeof(To));
  launch(plain_rows_kernel<kCodes, To>,
         {{static_cast<uint32_t>(ceil_div(args.to_rows, kPanelRows)),
           static_cast<uint32_t>(ceil_div(args.to_cols, kBlockCols))},
          {kRowWarps * 32}},
         stream, args);
}

RowsArgs args_of(const Weight& w, int64_t rows, void* to) {
  RowsArgs args{};
  args.to = static_cast<std::byte*>(to);
  args.rows = args.to_rows = rows;
  args.to_cols = w.cols;
  return args;
}

}  // namespace

void decode_rows(const Weight& w, int64_t first, int64_t rows, uint16_t* to, Stream stream) {
  if (is_grouped(w.format)) return grouped_decode_rows(w, first, rows, to, stream);
  RowsArgs args = args_of(w, rows, to);
  if (w.format.dtype == DType::bf16)
    return launch_rows<DType::bf16, uint16_t>(w, first, args, stream);
  check(w.format.dtype == DType::f8_e4m3, "codes that bf16 holds");
  if (w.format.scales == ScaleKind::per_block) {
    args.scale_cols = ceil_div(w.cols, kScaleBlock);
    args.scales = w.scales + first / kPanelRows * args.scale_cols;
  }
  launch_rows<DType::f8_e4m3, uint16_t>(w, first, args, stream);
}

void unpack_rows(const Weight& w, int64_t first, int64_t rows, uint8_t* to, Stream stream) {
  check(w.format.dtype == DType::f8_e4m3, "E4M3 codes");
  launch_rows<DType::f8_e4m3, uint8_t>(w, first, args_of(w, rows, to), stream);
}

void decode_rows_i8(const Weight& w, int64_t first, int64_t rows, I8Matrix to, Stream stream) {
  check(w.format.dtype == DType::i8 && to.rows >= rows && to.cols >= w.cols, "room for i8 codes");
  RowsArgs args = args_of(w, rows, to.data);
  args.to_rows = to.rows;
  args.to_cols = to.cols;
  launch_rows<DType::i8, int8_t>(w, first, args, stream);
}

}  // namespace sluice::cuda
