// Row groups as they come from the file, into a weight's storage. This header states the contract;
// quant/encode.cc holds the plain loops that define the result bit for bit, kernels/cpu the fast
// ones.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/float8.h"
#include "quant/format.h"
#include "quant/pack_codes.h"
#include "quant/scheme.h"
#include "src/base/dtype.h"

namespace sluice {

// Errors of a tensor's encoding. Addable, so that row groups can be encoded in any order: sums are
// in float64.
struct EncodeStats {
  double error_squares = 0;  // sum of (x - dequantized)^2
  double value_squares = 0;  // sum of x^2
  float max_error = 0;       // largest |x - dequantized|
  int64_t not_finite = 0;    // NaN or infinite source elements (they do not enter the sums)
  int64_t elements = 0;
  void add(const EncodeStats& other);
};

// Layout of a tensor of codes. A matrix that is stored as [inputs, outputs] has them in words of 32
// bits.
struct CodeWords {
  bool across = false;  // a word of codes has outputs; else inputs (words of zeros have outputs)
  // The place of each of eight outputs in a word of four-bit codes, a nibble each.
  uint32_t places = 0x76543210;
  // By rows: the first code of a byte has its upper bits; codes of four or eight bits have a
  // sign, and memory has them without it, as those of zeros.
  bool high_first = false;
  bool is_signed = false;
  // A matrix that is stored as [inputs, outputs]: its zeros are this and what is stored, without
  // what is above their bits.
  uint8_t added_to_zeros = 0;
  // By rows: codes of a word of 32 bits, whose upper bits are left over; 0: codes are one stream of
  // bits. Words of zeros are the same.
  int of_word = 0;
  // By rows: a byte has a code of an input for each of so many outputs, and the row is the one of
  // them at `place`.
  int sharing = 1;
  int place = 0;
  // Bits of a byte below those of the row.
  SLUICE_HD int bits_below(int bits) const {
    return (high_first ? sharing - 1 - place : place) * bits;
  }
  bool operator==(const CodeWords&) const = default;
};

struct EncodeArgs {
  const std::byte* source = nullptr;  // elements of `stored`; any alignment
  // f64, f32, f16 or bf16; or, into a weight of that type, a block's (quant/blocks.h), which is
  // only copied; or what quant/grouped_columns.h, row_codes.h or scaled_codes.h take.
  DType stored = DType::bf16;
  int64_t source_stride = 0;  // bytes from one source row to the next
  int64_t rows = 0;           // source rows given here
  ScaleGroup group = ScaleGroup::none;
  Weight to;  // cols = columns of a source row; dtype, layout and scales fit group
  // Row of `to` that the first source row becomes. In the packed layout a multiple of 16, and so is
  // rows, unless the tensor ends here: then the panel's other rows become zero, with scale 1.
  int64_t first_row = 0;
  // The destination and the stored order of codes that come from several tensors.
  Plane plane = Plane::codes;
  int64_t sharing = 1;        // of scales: outputs that have a source row together; 0: all
  CodeWords words = {};       // of codes and zeros
  int64_t flat = 0;           // neighbouring elements of the matrix with one number; 0: rows
  double factor = 1;          // of scales that are float32, and of an outer one of all
  bool inverse = false;       // of scales that are float32: 1 / a number
  int64_t across = 0;         // outputs whose numbers of a group lie together; 0: a row's do
  int64_t source_group = 0;   // inputs that share a number; 0: as many as in `to`
  int64_t first_col = 0;      // of `to`: input that the source begins with
  int64_t first_group = 0;    // and group, of scales and zeros
  int64_t first_output = 0;   // column of the source
  int64_t outputs = 0;        // columns, which are rows of `to`; 0: it has rows of it
  int64_t output_run = 0;     // neighbours among them; 0: all are
  int64_t output_stride = 0;  // from one such run to the next
  // Codes whose rows are outputs have one, [cols]: the input of each column of `to`; null: its own.
  // Rows that are inputs have none: quant/order_codes.h gives columns their order afterwards.
  const int32_t* order = nullptr;
  const float* tables = nullptr;  // what that plane becomes
  // ScaleGroup::block: the first source row begins a block (of 128 rows, fewer at the tensor's
  // end) and first_row is a multiple of 16; rows may span several blocks.
  // ScaleGroup::tensor and nested: the tensor's largest finite |x|, from absolute_max.
  float tensor_amax = 0;

  // Sources that are not one row after another. In runs of `run_rows` rows, of which each begins
  // run_stride bytes after the one before; 0: all rows are one run.
  int64_t run_rows = 0;
  int64_t run_stride = 0;
  int64_t column_stride = 0;  // bytes from an element of a row to the next; 0: they lie together
  // The source has `source_cols` of the columns of `to`, from first_col on, a multiple of 4, and of
  // 128 with ScaleGroup::block; they end with a cell, or the row. 0: all.
  int64_t source_cols = 0;
  // ScaleGroup::row: the scale of each source row, in host memory; null: it is found here, where
  // the source has all columns and they lie together. Written with the first column.
  const float* row_scales = nullptr;

  // The column of the source that is output `o`.
  int64_t output(int64_t o) const {
    return first_output + (output_run > 0 ? o / output_run * output_stride + o % output_run : o);
  }
  int64_t cols() const { return source_cols > 0 ? source_cols : to.cols; }
  int64_t element_stride() const { return column_stride > 0 ? column_stride : dtype_bytes(stored); }
  bool columns_lie_together() const { return element_stride() == dtype_bytes(stored); }
  // The first element of a source row.
  const std::byte* row(int64_t r) const {
    const int64_t run = run_rows > 0 ? r / run_rows : 0;
    return source + run * run_stride + (r - run * run_rows) * source_stride;
  }
  // Bytes from `source` to the end of the last element.
  int64_t source_bytes() const {
    return rows == 0
               ? 0
               : row(rows - 1) - source + (cols() - 1) * element_stride() + dtype_bytes(stored);
  }
};

// The contract above, as check()s.
void check_encode(const EncodeArgs& args);

// The scale of a group whose largest finite magnitude is amax: amax / the largest code (448 of
// E4M3, 57344 of E5M2, 127 of i8, and of u8, which are grouped codes of whole rows) in float32, or
// 1 where that is zero.
float code_scale(DType codes, float amax);

// Largest finite |x| of the rows: first pass of a per-tensor scale.
float absolute_max(const std::byte* source, DType stored, int64_t source_stride, int64_t rows,
                   int64_t cols);
// Updates amax[r] = max(amax[r], largest finite |x|) for each source row, in any form. Several
// threads may call it at once for columns of the same rows; `to` is not used.
void add_row_amax(const EncodeArgs& args, float* amax);

// The reference. With scale = code_scale(largest finite |x| of the group): code = x / scale, true
// division in float32, clamped to +- the largest code, rounded to nearest, ties to even; NaN
// becomes NaN (i8: 0), infinities saturate; dequantized = value of code * scale in float32. Without
// quantization elements keep their bits, or are converted where `to` has another type: through
// float32, to nearest even. An f64 element is rounded to float32 first; that is its x.
EncodeStats encode_reference(const EncodeArgs& args);

// Returns whether the source is a plane of a weight that is quantized already: bytes change their
// places, and no more.
bool is_quantized(const EncodeArgs& args);
// Encodes such a source as encode_reference does; `pack` packs grouped codes.
EncodeStats encode_quantized(const EncodeArgs& args, PackCodes* pack);
// Statistics of such a source, as encode_reference returns them, from the source alone; and the
// bytes from its begin to its end.
EncodeStats quantized_stats(const EncodeArgs& args);
int64_t quantized_source_bytes(const EncodeArgs& args);

// The dequantized element (row, col), in any layout; not of grouped weights (quant/groups.h).
float decode_element(const Weight& w, int64_t row, int64_t col);

// Row `row` as float32[cols]: how embeddings are looked up and norms are read.
void decode_row(const Weight& w, int64_t row, float* out);

}  // namespace sluice
