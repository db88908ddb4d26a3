// The layout of a loaded weight matrix in memory. Shared by loader, kernels and planner.
//
// Packed layout (linear layers; also a tied embedding). Output channels lie across SIMD lanes, so
// that one micro-kernel serves 1 row of activations and 512, in one summation order, and the units
// of AMX and AVX-512 BF16 can be fed without a transpose. The matrix [rows, cols] is cut into
// panels of 16 rows; a panel is a run of 64-byte cells, each holding 16 rows x (64 / 16 / element
// size) consecutive columns:
//   f32          cell = 16 rows x 1 col    element (r, k) at [r]
//   bf16, f16    cell = 16 rows x 2 cols   element (r, k) at [r][k % 2]
//   i8           cell = 16 rows x 4 cols   element (r, k) at byte r*4 + k%4
//   f8_e4m3      cell = 16 rows x 4 cols   element (r, k) at byte (r/4)*16 + (k%4/2)*8 + (r%4)*2 +
//   k%2: after
//                unpacking the low and high eight bytes of each 128-bit lane to 16 bits, two cells
//                as for bf16
// Rows are padded to whole panels and columns to whole cells, with zeros.
//
// An i8 code is kept as code + 128, in both layouts: dot products of bytes take one operand without
// a sign and one with (VPDPBUSD, TDPBSUD), and activations are the latter.
//
// Row layout (embedding tables that are only looked up, norms): plain row-major, no padding.
//
// Blocks of GGUF (dtype is one of quant/blocks.h) are kept as they are stored: in the row layout
// one after another, in the packed layout interleaved by panels. With scales per_row (of a tensor,
// as NVFP4's have) values are multiplied by their row's once more, last.
//
// Grouped codes (dtype u8, scales grouped): integers of 1 to 6 or 8 bits, dequantized = (code -
// zero) * scale, with a scale and a zero for each row and scale_cols columns. 32 columns of a row
// are a run of `bits` words of 32 bits. Columns (0, 1), (2, 3) ... of a word have the same bits of
// its lower and its upper half, from the lowest bits on. Codes of 3, 5 and 6 bits are two fields:
// words of the lower 2, 4 and 4 bits come first, then those of the upper 1, 1 and 2. In the packed
// layout a run is [word][16 rows]; columns are padded to whole runs. Scales and zeros:
// [rows][groups], packed [panels][groups][16]. A symmetric format has no zeros: all are zero_base.
// Zeros may be floats (zero_type), which are added to (code - zero_base) * scale instead where the
// format says so (adds_zeros). With another table than the integers a code is a float of four or
// eight bits, or stands for one of 16 floats of the weight's own, and there are no zeros. A scale
// may be a number, or a code: of E8M0 or E4M3, or of a table of the weight's own (u8). An outer
// scale then multiplies or divides it: one for a panel, [panels], or one for each row and
// outer_groups groups, laid out as scales are. Tables: 16 values of codes, then 256 of scales and
// what is added to a scale, as far as the format has them; float32. If the format is `ordered`,
// columns have been moved so that those of a group lie together: column k is input order[k].
//
// Scales of other formats (float32, dequantized = code * scale): none; one per row; or one per
// panel and scale_cols columns, [panels][ceil(cols / scale_cols)]. A per-tensor scale is stored per
// row: the same number for all rows of its tensor.
//
// Storage: the planes of a weight (codes, scales, zeros, ...) lie one after another in one piece
// of memory, each on a multiple of 64 bytes. In a plane the rows of a panel follow those of the
// panel before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "src/base/dtype.h"
#include "src/base/units.h"

namespace sluice {

inline constexpr int64_t kPanelRows = 16;
inline constexpr int64_t kCellBytes = 64;
inline constexpr int64_t kScaleBlock = 128;  // rows and columns of one scale in fp8_per_block

inline constexpr int64_t kMostI8Cols = 131072;  // sums of 127 * 127 that still fit an int32

enum class WeightLayout : uint8_t { rows, packed };
enum class ScaleKind : uint8_t { none, per_row, per_block, grouped };
// The values of grouped codes: themselves less a zero; without zeros those of floats of four or
// eight bits, or of the weight's own table of 16.
enum class CodeTable : uint8_t { integers, e2m1, e4m3, own };
// An outer scale makes a group's scale of the stored one, with one rounding.
enum class Outer : uint8_t { none, multiplies, divides };

inline constexpr int64_t kCodeValues = 16, kScaleValues = 256;  // of tables of a weight's own

struct WeightFormat {
  DType dtype = DType::bf16;  // f32, f16, bf16, f8_e4m3, i8, u8 of grouped codes, or a block's
  WeightLayout layout = WeightLayout::packed;
  ScaleKind scales = ScaleKind::none;
  // f8_e4m3: linear layers round their input to E4M3, too, each row by a scale of its own, or, if
  // scales are per_block, each row's runs of scale_cols columns. With i8 they always do so, rows
  // to i8. Integer codes in groups, on a CPU: blocks of inputs to i8 (kernels/grouped_sum.h).
  bool quantized_input = false;
  // per_block: kScaleBlock rows from each multiple of it on have the same scales.
  bool whole_blocks = false;
  bool ordered = false;  // grouped: it has a plane of the order of columns
  // Integers: of their plane of zeros; f32, f16 or bf16: these need not be whole.
  DType zero_type = DType::u8;
  bool adds_zeros = false;           // value = (code - zero_base) * scale + zero, of floats
  int64_t scale_cols = kScaleBlock;  // per_block and grouped: columns that share a scale
  // Grouped codes only.
  int bits = 0;
  CodeTable table = CodeTable::integers;
  // f32, f16 or bf16; f8_e8m0 or f8_e4m3; u8: codes of its own table, whose value, times the outer
  // scale, has the table's last number added.
  DType scale_type = DType::f32;
  Outer outer = Outer::none;
  bool symmetric = false;    // integers without a plane of zeros
  int zero_base = 0;         // a zero is this and what its plane has
  int32_t outer_groups = 0;  // of a row that have one outer scale; 0: a panel has one
  bool operator==(const WeightFormat&) const = default;
};

// Columns of one cell: 1, 2 or 4.
inline int64_t cell_cols(DType dtype) { return kCellBytes / kPanelRows / dtype_bytes(dtype); }
inline int64_t panel_bytes(DType dtype, int64_t cols) {
  return ceil_div(cols, cell_cols(dtype)) * kCellBytes;
}
// Scales of one panel.
int64_t panel_scales(const WeightFormat& format, int64_t cols);

enum class Plane : uint8_t { codes, scales, zeros, order, outers, tables };
inline constexpr std::array kPlanes{Plane::codes, Plane::scales, Plane::zeros,
                                    Plane::order, Plane::outers, Plane::tables};

// Bytes of one plane of a [rows, cols] weight. Arithmetic only: works on placeholders. The caller
// has checked that rows x cols x 4 does not overflow.
uint64_t plane_bytes(const WeightFormat& format, Plane plane, int64_t rows, int64_t cols);
// Returns where a row that begins a panel lies in a plane.
uint64_t plane_offset(const WeightFormat& format, Plane plane, int64_t row, int64_t cols);
// Bytes of all planes, and of a weight's storage, where planes begin on multiples of 64.
uint64_t weight_bytes(const WeightFormat& format, int64_t rows, int64_t cols);
uint64_t storage_bytes(const WeightFormat& format, int64_t rows, int64_t cols);

// A view of a stored weight. For the packed layout rows is a multiple of kPanelRows.
struct Weight {
  WeightFormat format;
  int64_t rows = 0;                   // output features, padding included
  int64_t cols = 0;                   // input features
  std::byte* data = nullptr;          // null: placeholder. 64-byte aligned.
  float* scales = nullptr;            // per_row and per_block
  std::byte* group_scales = nullptr;  // grouped: of scale_type
  std::byte* zeros = nullptr;         // grouped: of zero_type
  int32_t* order = nullptr;
  float* outers = nullptr;
  float* tables = nullptr;

  bool is_meta() const { return data == nullptr; }
  std::byte* plane(Plane which) const;  // null: it has none
};

// A weight whose planes are in `storage`, of storage_bytes.
Weight weight_in(const WeightFormat& format, int64_t rows, int64_t cols, std::byte* storage);

// The view of a weight without its first rows, which are whole panels.
Weight rows_from(Weight weight, int64_t first);

// Byte offset of element (row, col) in `data`.
int64_t element_offset(const Weight& w, int64_t row, int64_t col);
// The scale that applies to element (row, col); 1 without scales.
float scale_at(const Weight& w, int64_t row, int64_t col);

}  // namespace sluice
