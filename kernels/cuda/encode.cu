// Quantization of row groups while they are loaded: quant/encode.h on the device.
#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/element.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/panels.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/simt.h"
#include "quant/encode_groups.h"
#include "quant/group_codes.h"
#include "quant/groups.h"
#include "quant/matrix_layout.h"

namespace sluice::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kWarps = kThreads / 32;

__device__ inline float finite_magnitude(float x) {
  const float magnitude = fabsf(x);
  return magnitude < std::bit_cast<float>(kFloatInfinityBits) ? magnitude : 0.0f;
}

// Floats that are not negative have the order of their bits.
__device__ inline void atomic_max_float(float* at, float x) {
  atomicMax(reinterpret_cast<int*>(at), std::bit_cast<int>(x));
}

struct Shared {
  float amax[kWarps];
  double error_squares[kWarps], value_squares[kWarps];
  float max_error[kWarps];
  int not_finite[kWarps];
};

// Places of a source's rows, as in EncodeArgs.
struct Rows {
  const std::byte* first;
  int64_t stride;
  int64_t run_rows, run_stride;  // 0: one run
  int64_t column_stride;
  __device__ const std::byte* row(int64_t r) const {
    const int64_t run = run_rows > 0 ? r / run_rows : 0;
    return first + run * run_stride + (r - run * run_rows) * stride;
  }
};

// The elements that a block of threads takes: rows of a matrix, kWidth columns at a time.
struct Area {
  Rows source;
  int64_t first_row, first_col;
  int rows, cols;
};

// body(source, row, column) for each kWidth elements of the area that are this thread's.
template <int kWidth, class Code, class Body>
__device__ void each_piece(const Area& area, Body&& body) {
  const int pieces = (area.cols + kWidth - 1) / kWidth;  // of a row; kWidth > 1 divides cols
  for (int i = static_cast<int>(threadIdx.x); i < area.rows * pieces; i += kThreads) {
    const int row = i / pieces, col = i % pieces * kWidth;
    const std::byte* from =
        area.source.row(area.first_row + row) + (area.first_col + col) * area.source.column_stride;
    body(load_streaming<Vec<Code, kWidth>>(reinterpret_cast<const Code*>(from)), row, col);
  }
}

template <DType kStored, int kWidth>
__device__ float area_amax(const Area& area) {
  float amax = 0;
  each_piece<kWidth, typename Element<kStored>::Code>(area, [&](const auto& x, int, int) {
    for (int i = 0; i < kWidth; ++i) {
      amax = fmaxf(amax, finite_magnitude(Element<kStored>::decode(x.at[i])));
    }
  });
  return amax;
}

// A thread's part of EncodeStats.
struct Tally {
  double error_squares = 0, value_squares = 0;
  float max_error = 0;
  int not_finite = 0;
  __device__ void add(float x, float decoded) {
    if (!(fabsf(x) < std::bit_cast<float>(kFloatInfinityBits))) {
      ++not_finite;
      return;
    }
    const double error = static_cast<double>(x) - static_cast<double>(decoded);
    error_squares += error * error;
    value_squares += static_cast<double>(x) * static_cast<double>(x);
    max_error = fmaxf(max_error, static_cast<float>(fabs(error)));
  }
};

__device__ inline void add_to_stats(const Tally& mine, int64_t elements, EncodeStats* stats,
                                    Shared& shared) {
  const double error = block_reduce(mine.error_squares, Plus{}, shared.error_squares);
  const double value = block_reduce(mine.value_squares, Plus{}, shared.value_squares);
  const float largest = block_reduce(mine.max_error, Larger{}, shared.max_error);
  const int not_finite = block_reduce(mine.not_finite, Plus{}, shared.not_finite);
  if (threadIdx.x != 0) return;
  using Count = unsigned long long;  // the type of atomicAdd
  atomicAdd(&stats->error_squares, error);
  atomicAdd(&stats->value_squares, value);
  atomic_max_float(&stats->max_error, largest);
  atomicAdd(reinterpret_cast<Count*>(&stats->not_finite), static_cast<Count>(not_finite));
  atomicAdd(reinterpret_cast<Count*>(&stats->elements), static_cast<Count>(elements));
}

// The place where the codes of the source's elements go.
struct Destination {
  std::byte* to;        // the first row's first column; in panels, the first row's panel
  int64_t cols;         // of a row
  int64_t panel_bytes;  // 0: plain rows
  int64_t first_col;    // in panels

  template <DType kTo>
  __device__ auto* at(int64_t row, int64_t col) const {
    using Code = typename Element<kTo>::Code;
    if constexpr (kInPanels<kTo>) {
      if (panel_bytes > 0)
        return reinterpret_cast<Code*>(to + row / kPanelRows * panel_bytes +
                                       code_place<kTo>(row, first_col + col));
    }
    return reinterpret_cast<Code*>(to) + row * cols + col;
  }
};

// Stores neighbouring codes of a row; in panels, as many at once as lie together.
template <DType kTo, class Code, int kWidth>
__device__ void store_codes(const Destination& to, int64_t row, int64_t col,
                            const Vec<Code, kWidth>& codes) {
  constexpr int kTogether = kWidth == 1 ? 1 : kTo == DType::i8 && kWidth >= 4 ? 4 : 2;
  if (to.panel_bytes == 0) return store_as(to.template at<kTo>(row, col), codes);
  for (int i = 0; i < kWidth; i += kTogether) {
    Vec<Code, kTogether> part;
    for (int j = 0; j < kTogether; ++j) part.at[j] = codes.at[i + j];
    store_as(to.template at<kTo>(row, col + i), part);
  }
}

// Zeros in a row's columns [begin, end), of panels.
template <DType kTo>
__device__ void clear_columns(const Destination& to, int64_t row, int64_t begin, int64_t end) {
  for (int64_t c = begin + threadIdx.x; c < end; c += kThreads)
    *to.template at<kTo>(row, c) = kTo == DType::i8 ? 128 : 0;
}

template <DType kStored, DType kTo, int kWidth>
__device__ void encode_area(const Area& area, float scale, const Destination& to, Tally& tally) {
  using From = Element<kStored>;
  using Into = Element<kTo>;
  using Codes = Vec<typename Into::Code, kWidth>;
  each_piece<kWidth, typename From::Code>(area, [&](const auto& x, int row, int col) {
    Codes codes;
    for (int i = 0; i < kWidth; ++i) {
      const float value = From::decode(x.at[i]);
      if constexpr (kStored == kTo) {
        codes.at[i] = x.at[i];  // NaN payloads, too
      } else {
        // A quotient of NaN has lost its sign, other than on the CPU.
        codes.at[i] = Into::encode(value == value ? value / scale : value);
      }
      tally.add(value, Into::decode(codes.at[i]) * scale);
    }
    store_codes<kTo>(to, area.first_row + row, area.first_col + col, codes);
  });
}

// quant's code_scale.
template <DType kTo>
__device__ float scale_of(float amax) {
  const float scale = amax / Element<kTo>::kMax;
  return scale > 0 ? scale : 1.0f;
}

struct KernelArgs {
  Rows source;
  int64_t rows, cols;
  ScaleGroup group;
  const float* tensor_amax;
  bool has_scales;  // row scales are there
  Destination to;
  int64_t padded_cols;  // of the source's, with those that fill the last cell of panels
  float* scales;        // of the first row, or of its panel's first block
  int64_t to_blocks;    // of a panel
  EncodeStats* stats;
};

// A block encodes a row.
template <DType kStored, DType kTo, int kWidth>
__global__ void __launch_bounds__(kThreads) encode_rows(KernelArgs a) {
  auto& shared = shared_memory<Shared>();
  const int64_t row = blockIdx.x;
  if (row >= a.rows) {  // fills the panel
    clear_columns<kTo>(a.to, row, 0, a.padded_cols);
    if (dtype_is_code(kTo) && threadIdx.x == 0) a.scales[row] = 1;
    return;
  }
  const Area area{a.source, row, 0, 1, static_cast<int>(a.cols)};
  float scale = 1;
  if constexpr (dtype_is_code(kTo)) {
    if (a.has_scales) {
      scale = a.scales[row];
    } else {
      scale = scale_of<kTo>(
          a.group == ScaleGroup::tensor
              ? *a.tensor_amax
              : block_reduce(area_amax<kStored, kWidth>(area), Larger{}, shared.amax));
      if (threadIdx.x == 0) a.scales[row] = scale;
    }
  }
  Tally tally;
  encode_area<kStored, kTo, kWidth>(area, scale, a.to, tally);
  clear_columns<kTo>(a.to, row, a.cols, a.padded_cols);
  add_to_stats(tally, a.cols, a.stats, shared);
}

// A block encodes kScaleBlock x kScaleBlock elements: x counts them along a row, y down a column.
template <DType kStored, DType kTo, int kWidth>
__global__ void __launch_bounds__(kThreads) encode_blocks(KernelArgs a) {
  auto& shared = shared_memory<Shared>();
  const int64_t row = blockIdx.y * kScaleBlock, col = blockIdx.x * kScaleBlock;
  const int64_t rows = a.rows - row < kScaleBlock ? a.rows - row : kScaleBlock;
  const int64_t cols = a.cols - col < kScaleBlock ? a.cols - col : kScaleBlock;
  const Area area{a.source, row, col, static_cast<int>(rows), static_cast<int>(cols)};
  const float amax = block_reduce(area_amax<kStored, kWidth>(area), Larger{}, shared.amax);
  const float scale = scale_of<kTo>(amax);
  const int64_t panel = row / kPanelRows + threadIdx.x;
  if (threadIdx.x * kPanelRows < rows) a.scales[panel * a.to_blocks + blockIdx.x] = scale;
  Tally tally;
  encode_area<kStored, kTo, kWidth>(area, scale, a.to, tally);
  if (a.to.panel_bytes > 0) {  // the last blocks fill panels and cells
    const int64_t end = col + cols < a.cols ? col + cols : a.padded_cols;
    for (int64_t r = row; r < ceil_div(row + rows, kPanelRows) * kPanelRows; ++r)
      clear_columns<kTo>(a.to, r, r < row + rows ? col + cols : col, end);
  }
  add_to_stats(tally, rows * cols, a.stats, shared);
}

struct GroupArgs {
  Rows source;
  int64_t first_row, rows, first_col, cols;  // of the weight; columns of the source
  GroupCoding coding;
  int zero_base;
  int64_t runs, groups, group_cols;  // of a row of the weight; columns that share a scale
  int64_t unit_cols, units;          // columns that a warp takes, and such parts of a row
  const float* tensor_amax;          // null: there is no outer scale
  bool has_scales;                   // row scales are there
  uint32_t* to;
  std::byte* scales;
  float* outers;
  float* tables;  // null: there are none, or another part writes them
  EncodeStats* stats;
};

struct Either {
  __device__ uint32_t operator()(uint32_t a, uint32_t b) const { return a | b; }
};

// The value of a code, as quant's code_value.
__device__ inline float value_of(const GroupArgs& a, uint32_t code) {
  if (a.coding.table == CodeTable::own) return Nf4::level(static_cast<int>(code));
  const float value = code_value(a.coding.table, nullptr, static_cast<int>(code));
  return a.coding.table == CodeTable::integers ? value - static_cast<float>(a.zero_base) : value;
}

// The group's scale of a lane, whose largest element among its lanes is `amax`.
__device__ inline GroupScale put_group_scale(const GroupArgs& a, int64_t at, float amax,
                                             float outer, bool writes) {
  if (a.has_scales) {
    const float scale = reinterpret_cast<const float*>(a.scales)[at];
    return {std::bit_cast<uint32_t>(scale), scale};
  }
  const GroupScale scale = group_scale(a.coding, amax, outer);
  if (!writes) return scale;
  if (a.coding.scale_type == DType::f32) {
    reinterpret_cast<uint32_t*>(a.scales)[at] = scale.stored;
  } else {
    a.scales[at] = static_cast<std::byte>(scale.stored);
  }
  return scale;
}

// A warp's unit: columns of a row that are whole groups and runs. A lane has a column of a run.
template <DType kStored>
__device__ void encode_unit(const GroupArgs& a, int64_t row, int64_t unit, float outer,
                            Tally& tally) {
  using From = Element<kStored>;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t first = unit * a.unit_cols;
  const int64_t end = first + a.unit_cols < a.cols ? first + a.unit_cols : a.cols;
  const std::byte* from = a.source.row(row);
  const auto element = [&](int64_t c) {
    return From::decode(
        *reinterpret_cast<const typename From::Code*>(from + c * a.source.column_stride));
  };
  const bool small = a.group_cols < kRunCols;
  const int64_t scales = (a.first_row + row) * a.groups;
  GroupScale scale;
  if (!small) {
    float amax = 0;
    for (int64_t c = first + lane; !a.has_scales && c < end; c += 32)
      amax = fmaxf(amax, finite_magnitude(element(c)));
    amax = warp_reduce(amax, Larger{});
    scale =
        put_group_scale(a, scales + (a.first_col + first) / a.group_cols, amax, outer, lane == 0);
  }
  const int bits = a.coding.bits, word_cols = 32 / bits;
  for (int64_t c = first; c < end; c += kRunCols) {
    const bool inside = c + lane < end;
    const float x = inside ? element(c + lane) : 0.0f;
    if (small) {  // 16 columns
      const float amax = warp_reduce<16>(finite_magnitude(x), Larger{});
      scale = put_group_scale(a, scales + (a.first_col + c + lane) / a.group_cols, amax, outer,
                              inside && lane % 16 == 0);
    }
    const uint32_t code = inside ? group_code(a.coding, x, scale.value) : 0;
    if (inside) tally.add(x, value_of(a, code) * scale.value);
    const uint32_t placed = code << (lane % 2 * 16 + lane % word_cols / 2 * bits);
    uint32_t mine = 0;
    for (int w = 0; w < bits; ++w) {
      const uint32_t word = warp_reduce(lane / word_cols == w ? placed : 0u, Either{});
      if (lane == w) mine = word;
    }
    const int64_t run = (a.first_row + row) * a.runs + (a.first_col + c) / kRunCols;
    if (lane < bits) a.to[run * bits + lane] = mine;
  }
}

template <DType kStored>
__global__ void __launch_bounds__(kThreads) encode_groups_kernel(GroupArgs a) {
  auto& shared = shared_memory<Shared>();
  const float outer = a.tensor_amax == nullptr ? 1 : outer_scale(a.coding, *a.tensor_amax);
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int64_t row = at / a.units;
  const bool first_of_row = at % a.units == 0 && threadIdx.x % 32 == 0;
  if (blockIdx.x == 0 && a.tables != nullptr && threadIdx.x < kCodeValues)
    a.tables[threadIdx.x] = Nf4::level(static_cast<int>(threadIdx.x));
  Tally tally;
  if (row < a.rows) {
    // The first row may lie within a panel.
    if (a.outers != nullptr && first_of_row && (row == 0 || (a.first_row + row) % kPanelRows == 0))
      a.outers[(a.first_row + row) / kPanelRows] = outer;
    encode_unit<kStored>(a, row, at % a.units, outer, tally);
  }
  add_to_stats(tally, blockIdx.x == 0 ? a.rows * a.cols : 0, a.stats, shared);
}

// A block takes a row.
template <DType kStored, int kWidth>
__global__ void __launch_bounds__(kThreads)
    amax_kernel(const std::byte* source, int64_t source_stride, int64_t cols, float* amax) {
  const Rows rows{source, source_stride, 0, 0,
                  static_cast<int>(sizeof(typename Element<kStored>::Code))};
  const Area area{rows, blockIdx.x, 0, 1, static_cast<int>(cols)};
  const float mine = area_amax<kStored, kWidth>(area);
  const float all = block_reduce(mine, Larger{}, shared_memory<Shared>().amax);
  if (threadIdx.x == 0) atomic_max_float(amax, all);
}

void check_source(const std::byte* source, DType stored, int64_t stride) {
  const int64_t start = static_cast<int64_t>(reinterpret_cast<uintptr_t>(source));
  check((start | stride) % dtype_bytes(stored) == 0, "a source that is aligned to its elements");
}

bool vectors_fit(const std::byte* source, int64_t stride, int64_t cols, int width, int bytes) {
  const auto start = reinterpret_cast<uintptr_t>(source);
  return start % 16 == 0 && stride % 16 == 0 && cols % width == 0 && width * bytes <= 16;
}

// Elements at a time: as many of the wider type as have 16 bytes.
template <DType kStored, DType kTo>
constexpr int kVector = 16 / (kStored == DType::f64                        ? 8
                              : kStored == DType::f32 || kTo == DType::f32 ? 4
                                                                           : 2);

template <DType kStored, DType kTo, int kWidth>
void launch_encode(const EncodeArgs& a, const KernelArgs& args, Stream stream) {
  if (a.group != ScaleGroup::block) {
    const int64_t rows =
        args.to.panel_bytes > 0 ? ceil_div(a.rows, kPanelRows) * kPanelRows : a.rows;
    launch(encode_rows<kStored, kTo, kWidth>,
           {{static_cast<uint32_t>(rows)}, {kThreads}, sizeof(Shared)}, stream, args);
  } else if constexpr (dtype_is_code(kTo)) {
    launch(encode_blocks<kStored, kTo, kWidth>,
           {{static_cast<uint32_t>(ceil_div(a.cols(), kScaleBlock)),
             static_cast<uint32_t>(ceil_div(a.rows, kScaleBlock))},
            {kThreads},
            sizeof(Shared)},
           stream, args);
  }
}

void encode_to_groups(const EncodeArgs& a, const float* tensor_amax, EncodeStats* stats,
                      Stream stream) {
  check_groups(a);
  check_source(a.source, a.stored, a.source_stride | a.run_stride | a.element_stride());
  if (a.rows == 0 || a.cols() == 0) return;
  const WeightFormat& format = a.to.format;
  const int64_t wide = group_cols(format), cols = a.cols();
  const int64_t groups = groups_of(format, a.to.cols);
  const int64_t unit = wide > cols ? cols : wide < kRunCols ? int64_t{kRunCols} : wide;
  const GroupArgs args{
      .source = {a.source, a.source_stride, a.run_rows, a.run_stride, a.element_stride()},
      .first_row = a.first_row,
      .rows = a.rows,
      .first_col = a.first_col,
      .cols = cols,
      .coding = group_coding(format, a.stored),
      .zero_base = format.zero_base,
      .runs = ceil_div(a.to.cols, kRunCols),
      .groups = groups,
      .group_cols = wide,
      .unit_cols = unit,
      .units = ceil_div(cols, unit),
      .tensor_amax = format.outer == Outer::none ? nullptr : tensor_amax,
      .has_scales = a.row_scales != nullptr,
      .to = reinterpret_cast<uint32_t*>(a.to.data),
      .scales = a.to.group_scales,
      .outers = a.first_col == 0 ? a.to.outers : nullptr,
      .tables = a.first_col == 0 && a.first_row == 0 ? a.to.tables : nullptr,
      .stats = stats};
  const Launch at{{static_cast<uint32_t>(ceil_div(a.rows * args.units, int64_t{kWarps}))},
                  {kThreads},
                  sizeof(Shared)};
  with_dtype<DType::f64, DType::f32, DType::f16, DType::bf16>(
      a.stored, [&](auto stored) { launch(encode_groups_kernel<stored()>, at, stream, args); });
}

}  // namespace

void encode(const EncodeArgs& a, const float* tensor_amax, EncodeStats* stats, Stream stream) {
  check(!has_tensor_scale(a.group) || tensor_amax != nullptr, "the tensor's largest value");
  if (makes_groups(a)) {
    check(a.to.format.layout == WeightLayout::rows, "the device's weights have plain rows");
    return encode_to_groups(a, tensor_amax, stats, stream);
  }
  check_encode(a);
  const bool panels = a.to.format.layout == WeightLayout::packed;
  check(!panels || layout_of(MatrixLayout::by_codes, a.to.format) == WeightLayout::packed,
        "panels of codes that a device has in them");
  check_source(a.source, a.stored, a.source_stride | a.run_stride | a.element_stride());
  if (a.rows == 0 || a.to.cols == 0) return;
  const int64_t blocks = ceil_div(a.to.cols, kScaleBlock);
  const int64_t first_scale = a.group == ScaleGroup::block
                                  ? a.first_row / kPanelRows * blocks + a.first_col / kScaleBlock
                                  : a.first_row;
  std::byte* const first = a.to.data + element_offset(a.to, a.first_row, panels ? 0 : a.first_col);
  const bool to_the_end = panels && a.first_col + a.cols() == a.to.cols;
  const int64_t cell = panels ? cell_cols(a.to.format.dtype) : 1;
  const Destination to{first, a.to.cols, panel_step(a.to), a.first_col};
  const KernelArgs args{
      .source = {a.source, a.source_stride, a.run_rows, a.run_stride, a.element_stride()},
      .rows = a.rows,
      .cols = a.cols(),
      .group = a.group,
      .tensor_amax = tensor_amax,
      .has_scales = a.row_scales != nullptr,
      .to = to,
      .padded_cols = to_the_end ? ceil_div(a.cols(), cell) * cell : a.cols(),
      .scales = a.to.scales == nullptr ? nullptr : a.to.scales + first_scale,
      .to_blocks = blocks,
      .stats = stats};
  if (is_integer_vector(a.stored)) {
    return with_dtype<DType::i64, DType::i32>(
        a.stored, [&](auto stored) { launch_encode<stored(), DType::f32, 1>(a, args, stream); });
  }
  with_dtype<DType::f64, DType::f32, DType::f16, DType::bf16>(a.stored, [&](auto stored) {
    with_dtype<DType::f32, DType::f16, DType::bf16, DType::f8_e4m3, DType::i8>(
        a.to.format.dtype, [&](auto kept) {
          constexpr int kWidth = kVector<stored(), kept()>;
          const bool plain =
              a.columns_lie_together() && a.run_stride % 16 == 0 && a.cols() == a.to.cols;
          if (plain &&
              vectors_fit(a.source, a.source_stride, a.to.cols, kWidth, dtype_bytes(stored)) &&
              reinterpret_cast<uintptr_t>(a.to.data) % 16 == 0) {
            launch_encode<stored(), kept(), kWidth>(a, args, stream);
          } else {
            launch_encode<stored(), kept(), 1>(a, args, stream);
          }
        });
  });
}

void absolute_max(const std::byte* source, DType stored, int64_t source_stride, int64_t rows,
                  int64_t cols, float* amax, Stream stream) {
  check_source(source, stored, source_stride);
  if (rows == 0 || cols == 0) return;
  const Launch at{{static_cast<uint32_t>(rows)}, {kThreads}, sizeof(Shared)};
  with_dtype<DType::f64, DType::f32, DType::f16, DType::bf16>(stored, [&](auto dtype) {
    constexpr int kWidth = kVector<dtype(), dtype()>;
    if (vectors_fit(source, source_stride, cols, kWidth, dtype_bytes(dtype))) {
      launch(amax_kernel<dtype(), kWidth>, at, stream, source, source_stride, cols, amax);
    } else {
      launch(amax_kernel<dtype(), 1>, at, stream, source, source_stride, cols, amax);
    }
  });
}

}  // namespace sluice::cuda
