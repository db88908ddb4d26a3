// Weights in groups (quant/groups.h): blocks of GGUF and grouped codes, in rows. Planes of weights
// that are quantized already.
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/grouped.h"
#include "kernels/cuda/grouped_rows.cuh"
#include "kernels/cuda/panels.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/unit_codes.cuh"
#include "quant/row_codes.h"
#include "quant/scaled_codes.h"

namespace sluice::cuda {
namespace {

constexpr int kWarpsOfBlock = 8;

struct GemvArgs {
  Planes planes;
  const float* bias;
  const float* x;
  int64_t x_stride;
  float* y;
  int64_t y_stride;
  int rows, tokens;
  bool round;
  bool aligned;  // x can be read four columns at a time
};

constexpr int kPieceCols = 8;  // that a lane takes at a time: of one group

// Columns of x, zeros outside of it. `whole`: they are there, in this order, and can be read four
// at a time.
__device__ inline void load_inputs(const GemvArgs& a, const float* x, int c, bool whole,
                                   float (&to)[kPieceCols]) {
  if (whole) {
#pragma unroll
    for (int i = 0; i < kPieceCols; i += 4) {
      const auto four = load_as<Vec<float, 4>>(x + c + i);
#pragma unroll
      for (int k = 0; k < 4; ++k) to[i + k] = four.at[k];
    }
  } else {
    const int32_t* order = a.planes.order;
#pragma unroll
    for (int i = 0; i < kPieceCols; ++i)
      to[i] = c + i < a.planes.cols ? x[order == nullptr ? c + i : order[c + i]] : 0;
  }
  if (!a.round) return;
#pragma unroll
  for (int i = 0; i < kPieceCols; ++i) to[i] = bf16_to_float(float_to_bf16(to[i]));
}

// A warp takes a row of the weight, its lanes 8 neighbouring columns each in turn.
template <class Kind>
__global__ void __launch_bounds__(kWarpsOfBlock * 32) grouped_gemv_kernel(GemvArgs a) {
  const int lane = static_cast<int>(threadIdx.x);
  const int row = static_cast<int>(blockIdx.x * blockDim.y + threadIdx.y);
  if (row >= a.rows) return;
  const Planes& p = a.planes;
  const Row<Kind> w(p, row);
  constexpr int kTokens = static_cast<int>(kFewRows);
  float totals[kTokens] = {};
  for (int c = lane * kPieceCols; c < p.cols; c += 32 * kPieceCols) {
    const int g = c / p.group_cols;
    const float scale = w.scale(g), min = w.min(g);
    float codes[kPieceCols];
#pragma unroll
    for (int i = 0; i < kPieceCols; ++i)
      codes[i] = c + i < p.cols ? static_cast<float>(w.code(c + i)) : 0;
    if (a.round && p.values != nullptr) {  // others are exact
#pragma unroll
      for (int i = 0; i < kPieceCols; ++i) codes[i] = bf16_to_float(float_to_bf16(codes[i]));
    }
    const bool whole = a.aligned && c + kPieceCols <= p.cols;
#pragma unroll
    for (int n = 0; n < kTokens; ++n) {
      if (n >= a.tokens) continue;
      float x[kPieceCols], sum = 0, inputs = 0;
      load_inputs(a, a.x + n * a.x_stride, c, whole, x);
#pragma unroll
      for (int i = 0; i < kPieceCols; ++i) {
        sum = fmaf(x[i], codes[i], sum);
        inputs += x[i];
      }
      totals[n] += sum * scale - inputs * min;
    }
  }
#pragma unroll
  for (int n = 0; n < kTokens; ++n) {
    if (n >= a.tokens) continue;
    const float sum = warp_reduce(totals[n], Plus{}) * w.of_row;
    if (lane == n) a.y[n * a.y_stride + row] = a.bias == nullptr ? sum : sum + a.bias[row];
  }
}

struct DecodeArgs {
  Planes planes;
  int64_t first;
  uint16_t* to;  // [rows][planes.cols], the columns in the order of inputs
};

__global__ void __launch_bounds__(kElementwiseThreads) grouped_decode_kernel(DecodeArgs a) {
  const int c = static_cast<int>(elementwise_column(kPieceCols));
  const Planes& p = a.planes;
  if (c >= p.cols) return;
  const Row<GroupedCodes> w(p, a.first + blockIdx.x);
  Vec<uint16_t, kPieceCols> values;
#pragma unroll
  for (int i = 0; i < kPieceCols; ++i)
    values.at[i] = c + i < p.cols ? float_to_bf16(w.value(c + i)) : uint16_t{0};
  uint16_t* to = a.to + int64_t{blockIdx.x} * p.cols;
  if (p.order == nullptr && p.cols % kPieceCols == 0) return store_as(to + c, values);
  for (int i = 0; i < kPieceCols && c + i < p.cols; ++i)
    to[p.order == nullptr ? c + i : p.order[c + i]] = values.at[i];
}

// The same of blocks, eight columns at a time.
template <DType kType>
__global__ void __launch_bounds__(kElementwiseThreads) blocks_decode_kernel(DecodeArgs a) {
  using U = Units<Block<kType>>;
  const int eight = static_cast<int>(elementwise_column(1)), unit = eight / 4, t = eight % 4;
  const int cols = a.planes.cols;
  if (unit * kUnitCols >= cols) return;
  const U w(a.planes, a.first + blockIdx.x);
  uint16_t* to = a.to + int64_t{blockIdx.x} * cols + unit * kUnitCols + 4 * t;
  float scales[U::kGroups], mins[U::kGroups];
  const int u = unit % kUnitSpan, first = unit - u;
  w.factors(first, u, scales, mins);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float scale = scales[half % U::kGroups], min = mins[half % U::kGroups];
    const uint32_t codes = w.quad(first, u, half * 16 + 4 * t);
    Vec<uint16_t, 4> values;
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const uint32_t pair =
          unit_pair<U::kFields, U::kMinus>(codes >> (8 * odd) & 0x00ff00ff, uint16_t{0});
      for (int i = 0; i < 2; ++i)
        values.at[2 * i + odd] =
            float_to_bf16(scale * bf16_to_float(static_cast<uint16_t>(pair >> (16 * i))) - min);
    }
    store_as(to + half * 16, values);
  }
}

struct EmbedArgs {
  Planes planes;
  const int32_t* ids;  // null: rows from `first` on
  int64_t first;
  float* out;
  int64_t out_stride;
};

template <class Kind>
__global__ void __launch_bounds__(kElementwiseThreads) grouped_embed_kernel(EmbedArgs a) {
  const int64_t c = elementwise_column(1);
  if (c >= a.planes.cols) return;
  const Row<Kind> w(a.planes, a.ids == nullptr ? a.first + blockIdx.x : a.ids[blockIdx.x]);
  const int64_t input = a.planes.order == nullptr ? c : a.planes.order[c];
  a.out[blockIdx.x * a.out_stride + input] = w.value(static_cast<int>(c));
}

struct CopyArgs {
  const std::byte* source;
  int64_t stride, run_rows, run_stride;
  std::byte* to;
  int64_t row_bytes;
};

__global__ void __launch_bounds__(kElementwiseThreads) copy_rows_kernel(CopyArgs a) {
  const int64_t at = elementwise_column(1);
  if (at >= a.row_bytes) return;
  const int64_t row = blockIdx.x, run = a.run_rows > 0 ? row / a.run_rows : 0;
  const std::byte* from = a.source + run * a.run_stride + (row - run * a.run_rows) * a.stride;
  a.to[row * a.row_bytes + at] = from[at];
}

struct PanelCopyArgs {
  const std::byte* source;
  int64_t stride, run_rows, run_stride;
  std::byte* to;  // the first row's panel
  int64_t panel_bytes, rows, cols;
};

// E4M3 codes into panels, with zeros behind the last row and column.
__global__ void __launch_bounds__(kElementwiseThreads) copy_codes_kernel(PanelCopyArgs a) {
  constexpr int kCols = 2;  // that lie together
  const int64_t c = elementwise_column(kCols), row = blockIdx.x;
  if (c * kPanelRows >= a.panel_bytes) return;
  const int64_t run = a.run_rows > 0 ? row / a.run_rows : 0;
  const std::byte* from = a.source + run * a.run_stride + (row - run * a.run_rows) * a.stride;
  Vec<std::byte, kCols> codes = {};
  for (int i = 0; i < kCols; ++i)
    if (row < a.rows && c + i < a.cols) codes.at[i] = from[c + i];
  store_as(a.to + row / kPanelRows * a.panel_bytes + code_place<DType::f8_e4m3>(row, c), codes);
}

// The place of an output, as EncodeArgs::output has it.
struct Outputs {
  int64_t first, run, stride;

  __device__ int64_t operator()(int64_t o) const {
    return first + (run > 0 ? o / run * stride + o % run : o);
  }
};

struct ColumnArgs {
  const uint32_t* source;
  int64_t source_words;  // of a row
  int bits;
  int64_t first_row, first_col;
  Outputs output;
  int64_t outputs;
  CodeWords words;
  int64_t to_runs;  // of a row of the weight
  uint32_t* to;
};

__device__ inline uint32_t stream_code(const uint32_t* words, int64_t apart, int bits, int64_t i) {
  const int64_t bit = i * bits, word = bit / 32;
  const int shift = static_cast<int>(bit % 32);
  uint64_t both = words[word * apart];
  if (shift + bits > 32) both |= static_cast<uint64_t>(words[(word + 1) * apart]) << 32;
  return static_cast<uint32_t>(both >> shift) & ((1u << bits) - 1);
}

// The four-bit code of an output in a row of words that have eight each.
__device__ inline uint32_t code_across(const uint32_t* row, uint32_t places, int64_t output) {
  return row[output / 8] >> ((places >> (output % 8 * 4) & 15) * 4) & 15;
}

// A thread makes one run of one output.
__global__ void __launch_bounds__(kElementwiseThreads) column_codes_kernel(ColumnArgs a) {
  const int64_t o = elementwise_column(1), run = blockIdx.x;
  if (o >= a.outputs) return;
  const int64_t col = a.first_col + run * kRunCols;
  const uint32_t* words = a.source + a.output(o);
  uint32_t out[8] = {};
  for (int c = 0; c < kRunCols; ++c) {
    const int64_t input = run * kRunCols + c;
    const uint32_t code =
        a.words.across ? code_across(a.source + input * a.source_words, a.words.places, a.output(o))
                       : stream_code(words, a.source_words, a.bits, input);
    put_run_code(out, 1, a.bits, c, code);
  }
  uint32_t* to = a.to + ((a.first_row + o) * a.to_runs + col / kRunCols) * a.bits;
  for (int j = 0; j < a.bits; ++j) to[j] = out[j];
}

struct GroupArgs {
  const std::byte* source;
  int64_t source_stride;
  int bits;
  int64_t first_row, first_group;
  Outputs output;
  int64_t outputs, groups;
  CodeWords words;    // of zeros
  std::byte* scales;  // or
  uint8_t* zeros;
  bool wide;  // scales are F32, else of two bytes
};

__global__ void __launch_bounds__(kElementwiseThreads) column_groups_kernel(GroupArgs a) {
  const int64_t o = elementwise_column(1), g = blockIdx.x;
  if (o >= a.outputs) return;
  const std::byte* from = a.source + g * a.source_stride;
  const int64_t at = (a.first_row + o) * a.groups + a.first_group + g, output = a.output(o);
  if (a.scales != nullptr && a.wide) {
    reinterpret_cast<float*>(a.scales)[at] = reinterpret_cast<const float*>(from)[output];
  } else if (a.scales != nullptr) {
    reinterpret_cast<uint16_t*>(a.scales)[at] = reinterpret_cast<const uint16_t*>(from)[output];
  } else {
    const auto* row = reinterpret_cast<const uint32_t*>(from);
    const uint32_t zero = a.words.across ? code_across(row, a.words.places, output)
                                         : stream_code(row, 1, a.bits, output);
    a.zeros[at] = static_cast<uint8_t>((zero + static_cast<uint32_t>(a.words.added_to_zeros)) &
                                       ((1u << a.bits) - 1));
  }
}

// encode_grouped_columns() of quant/grouped_columns.h.
void encode_columns(const EncodeArgs& a, Stream stream) {
  const WeightFormat& format = a.to.format;
  const Outputs outputs{a.first_output, a.output_run, a.output_stride};
  if (a.plane != Plane::codes) {
    const bool scales = a.plane == Plane::scales;
    const GroupArgs args{a.source,
                         a.source_stride,
                         format.bits,
                         a.first_row,
                         a.first_group,
                         outputs,
                         a.outputs,
                         groups_of(format, a.to.cols),
                         a.words,
                         scales ? a.to.group_scales : nullptr,
                         reinterpret_cast<uint8_t*>(a.to.zeros),
                         a.stored == DType::f32};
    return launch(column_groups_kernel, elementwise_launch(a.rows, a.outputs, 1), stream, args);
  }
  const ColumnArgs args{reinterpret_cast<const uint32_t*>(a.source),
                        a.source_stride / 4,
                        format.bits,
                        a.first_row,
                        a.first_col,
                        outputs,
                        a.outputs,
                        a.words,
                        ceil_div(a.to.cols, kRunCols),
                        reinterpret_cast<uint32_t*>(a.to.data)};
  const int64_t rows = a.words.across ? kRunCols : format.bits;  // of a run
  launch(column_codes_kernel, elementwise_launch(a.rows / rows, a.outputs, 1), stream, args);
}

struct OrderArgs {
  const uint32_t* from;
  int64_t runs;  // of a row
  int bits;
  const int32_t* order;
  uint32_t* to;
};

// A thread makes a run of a row.
__global__ void __launch_bounds__(kElementwiseThreads) order_columns_kernel(OrderArgs a) {
  const int64_t run = elementwise_column(1), row = blockIdx.x;
  if (run >= a.runs) return;
  const uint32_t* from = a.from + row * a.runs * a.bits;
  uint32_t words[8] = {};
  for (int c = 0; c < kRunCols; ++c) {
    const int32_t input = a.order[run * kRunCols + c];
    const int code =
        run_code(from + int64_t{input / kRunCols} * a.bits, 1, a.bits, input % kRunCols);
    put_run_code(words, 1, a.bits, c, static_cast<uint32_t>(code));
  }
  uint32_t* to = a.to + (row * a.runs + run) * a.bits;
  for (int w = 0; w < a.bits; ++w) to[w] = words[w];
}

// Copies row_bytes of each source row into rows of the codes.
void copy_rows(const EncodeArgs& a, int64_t row_bytes, Stream stream) {
  const CopyArgs args{.source = a.source,
                      .stride = a.source_stride,
                      .run_rows = a.run_rows,
                      .run_stride = a.run_stride,
                      .to = a.to.data + a.first_row * row_bytes,
                      .row_bytes = row_bytes};
  launch(copy_rows_kernel, elementwise_launch(a.rows, row_bytes, 1), stream, args);
}

struct RowCodeArgs {
  const std::byte* source;
  int64_t stride, run_rows, run_stride;
  int64_t row_bytes;  // of the source
  int bits;
  CodeWords words;
  int64_t to_runs, first_row;
  int cols;
  const int32_t* order;  // or null
  uint32_t* to;
};

__device__ inline uint32_t row_code(const RowCodeArgs& a, const std::byte* row, int input) {
  const int each = a.words.of_word;
  if (a.words.sharing > 1) {
    return static_cast<uint32_t>(row[input]) >> a.words.bits_below(a.bits) & ((1u << a.bits) - 1);
  }
  const int64_t bit =
      each > 0 ? int64_t{input / each} * 32 + input % each * a.bits : int64_t{input} * a.bits;
  const int64_t first = bit / 8;
  auto both = static_cast<uint32_t>(row[first]);
  if (first + 1 < a.row_bytes) both |= static_cast<uint32_t>(row[first + 1]) << 8;
  if (a.words.is_signed) both ^= a.bits == 4 ? 0x8888 : 0x8080;
  if (a.words.high_first) both = (both & 0x0f0f) << 4 | (both >> 4 & 0x0f0f);
  return both >> bit % 8 & ((1u << a.bits) - 1);
}

// A thread makes a run of the weight.
__global__ void __launch_bounds__(kElementwiseThreads) row_codes_kernel(RowCodeArgs a) {
  const int at = static_cast<int>(elementwise_column(1));
  if (at >= a.to_runs) return;
  const int64_t row = blockIdx.x, run = a.run_rows > 0 ? row / a.run_rows : 0;
  const std::byte* from = a.source + run * a.run_stride + (row - run * a.run_rows) * a.stride;
  uint32_t words[8] = {};
  for (int c = 0; c < kRunCols; ++c) {
    const int col = at * kRunCols + c;
    uint32_t code = a.words.is_signed ? 1u << (a.bits - 1) : 0;  // behind the last column
    if (col < a.cols) code = row_code(a, from, a.order == nullptr ? col : a.order[col]);
    put_run_code(words, 1, a.bits, c, code);
  }
  uint32_t* to = a.to + ((a.first_row + row) * a.to_runs + at) * a.bits;
  for (int w = 0; w < a.bits; ++w) to[w] = words[w];
}

struct RowNumberArgs {
  const std::byte* source;
  int64_t stride, sharing, flat, across, source_cols, first_col, source_group;
  Outputs output;
  int64_t cols, step;       // of a group; groups from a number to the next
  int64_t each, first_row;  // numbers of a row
  int64_t source_bytes;     // of a number
  int bits;                 // of zeros
  int64_t zeros_apart;      // words from one of their words to the next
  bool is_signed;
  double factor;
  bool inverse, to_float;
  DType stored;
  int64_t to_bytes;
  std::byte* to;
};

// Follows number_at() of quant/row_codes.cc.
__device__ inline const std::byte* number_in(const RowNumberArgs& a, int64_t row, int64_t i) {
  if (a.flat > 0) {
    const int64_t first = a.output(row) * a.source_cols + a.first_col;
    return a.source + (first + i * a.step * a.cols) / a.flat * a.source_bytes;
  }
  const int64_t group = (a.first_col + i * a.step * a.cols) / a.source_group;
  if (a.across > 0) return a.source + (group * a.across + a.output(row)) * a.source_bytes;
  if (a.sharing == 0) return a.source;
  return a.source + a.output(row) / a.sharing * a.stride + group * a.source_bytes;
}

__global__ void __launch_bounds__(kElementwiseThreads) row_numbers_kernel(RowNumberArgs a) {
  const int64_t at = elementwise_column(1), row = blockIdx.x;
  if (at >= a.each) return;
  const std::byte* from = number_in(a, row, at);
  std::byte* to = a.to + ((a.first_row + row) * a.each + at) * a.to_bytes;
  if (a.bits > 0) {
    const uint32_t mask = (1u << a.bits) - 1;
    const uint32_t zero = a.is_signed
                              ? static_cast<uint32_t>(*from) + (1u << (a.bits - 1))
                              : stream_code(reinterpret_cast<const uint32_t*>(from), a.zeros_apart,
                                            a.bits, a.output(row) % a.sharing);
    *to = static_cast<std::byte>(zero & mask);
  } else if (a.to_float) {
    const float number = stored_scale(from, a.stored, nullptr, 0);
    *reinterpret_cast<float*>(to) =
        static_cast<float>((a.inverse ? 1.0 / number : number) * a.factor);
  } else {
    for (int64_t b = 0; b < a.to_bytes; ++b) to[b] = from[b];
  }
}

// encode_row_codes() of quant/row_codes.h.
void encode_rows(const EncodeArgs& a, Stream stream) {
  const WeightFormat& format = a.to.format;
  if (a.plane == Plane::codes) {
    const int64_t runs = ceil_div(a.to.cols, kRunCols);
    const RowCodeArgs args{a.source,
                           a.source_stride,
                           a.run_rows,
                           a.run_stride,
                           code_row_bytes(a),
                           format.bits,
                           a.words,
                           runs,
                           a.first_row,
                           static_cast<int>(a.to.cols),
                           a.order != nullptr ? a.to.order : nullptr,
                           reinterpret_cast<uint32_t*>(a.to.data)};
    return launch(row_codes_kernel, elementwise_launch(a.rows, runs, 1), stream, args);
  }
  const bool outers = a.plane == Plane::outers, zeros = a.plane == Plane::zeros;
  const bool of_panels = outers && format.outer_groups == 0;
  RowNumberArgs args{};
  args.source = a.source;
  args.stride = a.source_stride;
  args.sharing = a.sharing;
  args.flat = a.flat;
  args.across = a.across;
  args.source_cols = a.source_cols;
  args.first_col = a.first_col;
  args.source_group = a.source_group > 0 ? a.source_group : format.scale_cols;
  args.output = {a.first_output, a.output_run, a.output_stride};
  args.cols = format.scale_cols;
  args.step = outers ? format.outer_groups : 1;
  args.each = of_panels ? 1 : outers ? outers_of(format, a.to.cols) : groups_of(format, a.to.cols);
  args.first_row = of_panels ? a.first_row / kPanelRows : a.first_row;
  args.source_bytes = outers ? 4 : dtype_bytes(a.stored);
  const bool packed_zeros = zeros && format.zero_type == DType::u8;
  const DType type = zeros ? format.zero_type : format.scale_type;
  args.bits = packed_zeros ? format.bits : 0;
  args.zeros_apart = packed_zeros ? zeros_apart(a) / 4 : 0;
  args.is_signed = a.words.is_signed;
  args.factor = outers && !of_panels ? 1 : a.factor;
  args.inverse = a.inverse;
  args.stored = outers ? DType::f32 : a.stored;
  args.to_float = outers || type == DType::f32;
  args.to_bytes = outers ? 4 : dtype_bytes(type);
  args.to = a.to.plane(a.plane);
  // All panels have the outer scale that their tensor has; rows may begin in a panel.
  const int64_t rows =
      of_panels ? ceil_div(a.first_row + a.rows, kPanelRows) - args.first_row : a.rows;
  launch(row_numbers_kernel, elementwise_launch(rows, args.each, 1), stream, args);
}

void copy_codes(const EncodeArgs& a, Stream stream) {
  if (a.to.format.layout == WeightLayout::rows) return copy_rows(a, a.to.cols, stream);
  const int64_t bytes = panel_bytes(DType::f8_e4m3, a.to.cols);
  const PanelCopyArgs args{a.source,
                           a.source_stride,
                           a.run_rows,
                           a.run_stride,
                           a.to.data + a.first_row / kPanelRows * bytes,
                           bytes,
                           a.rows,
                           a.to.cols};
  launch(copy_codes_kernel,
         elementwise_launch(ceil_div(a.rows, kPanelRows) * kPanelRows, bytes / kPanelRows, 2),
         stream, args);
}

struct ScaleArgs {
  const std::byte* source;
  DType stored;
  int64_t source_stride, first_scale;
  Outputs output;
  int64_t sharing;
  int64_t each;    // rows of the weight that have one scale of it
  int64_t rows;    // of these; behind them, scales are 1
  int64_t scales;  // of each
  float* to;
};

__global__ void __launch_bounds__(kElementwiseThreads) scales_kernel(ScaleArgs a) {
  const int64_t at = elementwise_column(1);
  if (at >= a.scales) return;
  const int64_t row = blockIdx.x;
  if (row >= a.rows) {
    a.to[row * a.scales + at] = 1;
    return;
  }
  const int64_t source_row = a.sharing > 0 ? a.output(row * a.each) / a.sharing : 0;
  const std::byte* first = a.source + source_row * a.source_stride;
  const int64_t from = a.first_scale + at;
  float value = 0;
  if (a.stored == DType::f32) {
    value = reinterpret_cast<const float*>(first)[from];
  } else if (a.stored == DType::f8_e8m0) {
    value = e8m0_to_float(reinterpret_cast<const uint8_t*>(first)[from]);
  } else {
    const uint16_t half = reinterpret_cast<const uint16_t*>(first)[from];
    value = a.stored == DType::bf16 ? bf16_to_float(half) : f16_to_float(half);
  }
  a.to[row * a.scales + at] = value;
}

// encode_scaled_codes() of quant/scaled_codes.h.
void encode_scaled(const EncodeArgs& a, Stream stream) {
  const WeightFormat& format = a.to.format;
  if (a.plane == Plane::codes) return copy_codes(a, stream);
  const bool blocks = format.scales == ScaleKind::per_block;
  const int64_t each = blocks ? kPanelRows : 1,
                scales = blocks ? panel_scales(format, a.to.cols) : 1;
  const ScaleArgs args{a.source,
                       a.stored,
                       a.source_stride,
                       first_scale(a),
                       {a.first_output, a.output_run, a.output_stride},
                       a.sharing,
                       each,
                       ceil_div(a.rows, each),
                       scales,
                       a.to.scales + a.first_row / each * scales};
  const bool fills = !blocks && format.layout == WeightLayout::packed;
  const int64_t rows = fills ? ceil_div(a.rows, kPanelRows) * kPanelRows : args.rows;
  launch(scales_kernel, elementwise_launch(rows, scales, 1), stream, args);
}

}  // namespace

void grouped_few_rows(Tensor x, const Weight& w, const float* bias, bool round, Tensor y,
                      Stream stream) {
  check(y.rows <= kFewRows, "a few rows");
  const GemvArgs args{
      planes_of(w),
      bias,
      x.row<float>(0),
      x.stride,
      y.row<float>(0),
      y.stride,
      static_cast<int>(w.rows),
      static_cast<int>(y.rows),
      round,
      w.order == nullptr && x.stride % 4 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0};
  const Launch at{{static_cast<uint32_t>(ceil_div(w.rows, kWarpsOfBlock))}, {32, kWarpsOfBlock}};
  with_kind(w.format.dtype,
            [&]<class Kind>(Kind) { launch(grouped_gemv_kernel<Kind>, at, stream, args); });
}

namespace {

void launch_embed(const Weight& w, const EmbedArgs& args, const Tensor& out, Stream stream) {
  with_kind(w.format.dtype, [&]<class Kind>(Kind) {
    launch(grouped_embed_kernel<Kind>, elementwise_launch(out.rows, out.cols, 1), stream, args);
  });
}

}  // namespace

void grouped_embed(const Weight& table, const int32_t* ids, Tensor out, Stream stream) {
  launch_embed(table, {planes_of(table), ids, 0, out.row<float>(0), out.stride}, out, stream);
}

void grouped_rows(const Weight& w, int64_t first, Tensor out, Stream stream) {
  launch_embed(w, {planes_of(w), nullptr, first, out.row<float>(0), out.stride}, out, stream);
}

void grouped_decode_rows(const Weight& w, int64_t first, int64_t rows, uint16_t* to,
                         Stream stream) {
  DecodeArgs args{planes_of(w), first, to};
  args.planes.row_scales = nullptr;
  const bool are_blocks = with_block(w.format.dtype, [&]<DType kType>(Block<kType>) {
    launch(blocks_decode_kernel<kType>, elementwise_launch(rows, w.cols / kPieceCols, 1), stream,
           args);
  });
  if (!are_blocks)
    launch(grouped_decode_kernel, elementwise_launch(rows, w.cols, kPieceCols), stream, args);
}

void order_columns(const Weight& to, const std::byte* copy, int64_t first, int64_t rows,
                   Stream stream) {
  check(to.format.layout == WeightLayout::rows && to.format.ordered && to.cols % kRunCols == 0,
        "whole runs in plain rows");
  const int64_t runs = to.cols / kRunCols, words = runs * to.format.bits;
  const OrderArgs args{reinterpret_cast<const uint32_t*>(copy), runs, to.format.bits, to.order,
                       reinterpret_cast<uint32_t*>(to.data) + first * words};
  launch(order_columns_kernel, elementwise_launch(rows, runs, 1), stream, args);
}

void encode_quantized(const EncodeArgs& a, Stream stream) {
  check(a.to.format.layout == WeightLayout::rows || !is_grouped(a.to.format),
        "the device's weights in groups have plain rows");
  if (a.rows == 0 || a.to.cols == 0) return;
  if (has_scaled_codes(a)) return encode_scaled(a, stream);
  if (a.to.format.scales == ScaleKind::grouped)
    return a.outputs > 0 ? encode_columns(a, stream) : encode_rows(a, stream);
  copy_rows(a, grouped_row_bytes(a.to.format, a.to.cols), stream);
}

}  // namespace sluice::cuda
