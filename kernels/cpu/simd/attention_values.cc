// The weighted sum of values: a tiled product, with 16 elements of the values in the role of a
// panel's output channels.
#include "kernels/cpu/simd/attention_partition.h"
#include "kernels/cpu/simd/float8.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int64_t kCell = 64;                     // bytes
constexpr int64_t kPairPanel = kRun / 2 * kCell;  // of 16 elements of a run

template <DType kDtype>
Vf load_value(const std::byte* from) {
  if constexpr (kDtype == DType::bf16) return load_bf16(from);
  if constexpr (kDtype == DType::f8_e4m3 || kDtype == DType::f8_e5m2)
    return load_float8<kDtype>(from);
  return load(from);
}

// 16 elements as a cell.
template <DType kDtype>
void widen(const std::byte* from, int64_t bytes, std::byte* to) {
  for (int64_t i = 0; i < 16; i += kLanes) store(to + i * 4, load_value<kDtype>(from + i * bytes));
}

#if defined(__AVX512BF16__)

// 64 elements of a position's value as bf16, or 32 where no more are there.
template <DType kDtype>
struct ValueLines {
  void load(const std::byte* from, bool all, __m512i (&lines)[2]) const {
    lines[0] = _mm512_loadu_si512(from);
    if (all) lines[1] = _mm512_loadu_si512(from + kCell);
  }
};
template <DType kDtype>
  requires(kDtype == DType::f8_e4m3 || kDtype == DType::f8_e5m2)
struct ValueLines<kDtype> {
  void load(const std::byte* from, bool all, __m512i (&lines)[2]) const {
    const __m512i codes = _mm512_maskz_loadu_epi64(all ? 0xff : 0x0f, from);
    float8_to_bf16(tables, codes, lines);
  }
  Float8Tables<kDtype> tables;
};

// Cells of 32 elements of two positions: a[0], b[0], a[1], b[1], ...
struct Interleave {
  Interleave() {
    alignas(64) uint16_t order[2][32];
    for (uint16_t i = 0; i < 32; ++i) {
      order[0][i] = static_cast<uint16_t>(i / 2 + i % 2 * 32);
      order[1][i] = static_cast<uint16_t>(16 + i / 2 + i % 2 * 32);
    }
    low = _mm512_load_si512(order[0]);
    high = _mm512_load_si512(order[1]);
  }
  __m512i low, high;
};

// `elements` in whole 16s.
template <DType kDtype>
void interleave(const ValueLines<kDtype>& values, const Interleave& order, const std::byte* a,
                const std::byte* b, int64_t elements, std::byte* to) {
  constexpr int64_t kBytes = kDtype == DType::bf16 ? 2 : 1;
  for (int64_t d = 0; d < elements; d += 64) {
    __m512i first[2], second[2];
    const bool all = d + 32 < elements;
    values.load(a + d * kBytes, all, first);
    values.load(b + d * kBytes, all, second);
    for (int64_t i = 0; i < (all ? 2 : 1); ++i, to += 2 * kPairPanel) {
      _mm512_store_si512(to, _mm512_permutex2var_epi16(first[i], order.low, second[i]));
      if (d + i * 32 + 16 < elements) {
        const __m512i high = _mm512_permutex2var_epi16(first[i], order.high, second[i]);
        _mm512_store_si512(to + kPairPanel, high);
      }
    }
  }
}

// Values [first, first + count), from an even position on, as cells [padded_values / 16][kRun / 2].
template <DType kDtype>
void value_pairs_of(const Partition& p, int64_t first, int64_t count, std::byte* cells) {
  const AttentionJob& job = p.job;
  const int64_t whole = job.value_dim / 32 * 32;
  const int64_t whole_bytes = whole * element_bytes(job.dtype);
  const auto rest_bytes = static_cast<size_t>((job.value_dim - whole) * element_bytes(job.dtype));
  const Interleave order;
  const ValueLines<kDtype> values;
  for (int64_t k = 0; k < count; k += 2) {
    const std::byte* pair[2];
    alignas(kCell) std::byte rest[2][kCell] = {};
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t position = first + k + i;
      // One that no query sees: add_half takes care of it, whatever it is.
      pair[i] = job.values + p.value_at[p.holds(position) ? position : first + k + 1 - i];
      if (rest_bytes > 0) std::memcpy(rest[i], pair[i] + whole_bytes, rest_bytes);
      if (position + kAhead < p.longest)
        prefetch_value(job, job.values + p.value_at[position + kAhead]);
    }
    std::byte* to = cells + k / 2 * kCell;
    interleave(values, order, pair[0], pair[1], whole, to);
    if (rest_bytes > 0) {
      interleave(values, order, rest[0], rest[1], job.padded_values - whole,
                 to + whole / 16 * kPairPanel);
    }
  }
}

#endif

// Queries [first, first + count) of a partition, and the sums of all queries.
struct Queries {
  int64_t first;
  int64_t count;
  float* values;
};

// Returns whether values need no cells: whole sixteens of elements, for few queries.
bool without_cells(const Partition& p) {
  return !in_pairs(p.job) && take_stored(p) && p.job.value_dim == p.job.padded_values;
}

// Elements whose sums are in registers with those of other rows: 12 of 16 registers, or 24 of 32.
constexpr int64_t most_sixteens(int64_t rows) {
  if (kLanes == 16) return 4;
  return kLanes == 8 && rows <= 3 ? 2 : 1;
}

// Positions [begin, end) for kRows queries, sixteens of elements from `d` on. Each sum takes the
// positions in order, as in the product.
template <DType kDtype, int64_t kRows, int64_t kSixteens>
void add_sixteens(const Partition& p, int64_t begin, int64_t end, int64_t d,
                  const Queries& queries) {
  constexpr int64_t kCols = kSixteens * 16 / kLanes;
  const int64_t bytes = element_bytes(kDtype), stride = p.job.padded_values;
  const std::byte* from = p.job.values + d * bytes;
  const uint32_t* weights = p.weights + begin * p.queries + queries.first;
  float* to = queries.values + queries.first * stride + d;
  Vf sums[kRows][kCols];
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int64_t v = 0; v < kCols; ++v) {
      sums[r][v] = begin > 0 ? load(to + r * stride + v * kLanes) : Vf{};
    }
  }
  const int64_t last = p.longest - 1;
  const int64_t line_bytes = d * bytes % 64 == 0 ? kSixteens * 16 * bytes : 0;  // fetched ahead
  for (int64_t k = begin; k < end; ++k, weights += p.queries) {
    const std::byte* later = from + p.value_at[smaller(k + kRun, last)];
    for (int64_t at = 0; at < line_bytes; at += 64) __builtin_prefetch(later + at, 0, 2);
    const std::byte* value = from + p.value_at[k];
    Vf w[kCols];
#pragma GCC unroll 16
    for (int64_t v = 0; v < kCols; ++v) w[v] = load_value<kDtype>(value + v * kLanes * bytes);
#pragma GCC unroll 16
    for (int64_t r = 0; r < kRows; ++r) {
      const Vf weight = as_floats(Vu{} + weights[r]);
#pragma GCC unroll 16
      for (int64_t v = 0; v < kCols; ++v) sums[r][v] = fma(weight, w[v], sums[r][v]);
    }
  }
#pragma GCC unroll 16
  for (int64_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int64_t v = 0; v < kCols; ++v) store(to + r * stride + v * kLanes, sums[r][v]);
  }
}

// All elements for at most kRows queries.
template <DType kDtype, int64_t kRows = kStoredRows>
void add_elements(const Partition& p, int64_t begin, int64_t end, const Queries& queries) {
  if (queries.count < kRows) {
    if constexpr (kRows > 1) add_elements<kDtype, kRows - 1>(p, begin, end, queries);
    return;
  }
  constexpr int64_t kMost = most_sixteens(kRows);
  int64_t d = 0;
  for (; d + kMost * 16 <= p.job.value_dim; d += kMost * 16) {
    add_sixteens<kDtype, kRows, kMost>(p, begin, end, d, queries);
  }
  for (; d < p.job.value_dim; d += 16) {
    add_sixteens<kDtype, kRows, 1>(p, begin, end, d, queries);
  }
}

// values[queries] (+)= weights x values of positions [begin, end), as they are stored.
void add_stored(const Partition& p, int64_t begin, int64_t end, const Queries& queries) {
  const int64_t groups = (queries.count + kStoredRows - 1) / kStoredRows;
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t row = queries.count * group / groups;
    const int64_t rows = queries.count * (group + 1) / groups - row;
    const Queries some{queries.first + row, rows, queries.values};
    switch (p.job.dtype) {
      case DType::bf16:
        add_elements<DType::bf16>(p, begin, end, some);
        break;
      case DType::f8_e4m3:
        add_elements<DType::f8_e4m3>(p, begin, end, some);
        break;
      case DType::f8_e5m2:
        add_elements<DType::f8_e5m2>(p, begin, end, some);
        break;
      default:
        add_elements<DType::f32>(p, begin, end, some);
    }
  }
}

template <DType kDtype>
void value_cells_of(const Partition& p, int64_t first, int64_t count, std::byte* cells) {
  const AttentionJob& job = p.job;
#if defined(__AVX512BF16__)
  if constexpr (kDtype != DType::f32) {
    if (in_pairs(job)) return value_pairs_of<kDtype>(p, first, count, cells);
  }
#endif
  const int64_t bytes = element_bytes(job.dtype);
  for (int64_t k = 0; k < count; ++k) {
    if (!p.holds(first + k)) continue;  // of no query
    const std::byte* from = job.values + p.value_at[first + k];
    std::byte* to = cells + k * kCell;
    if (first + k + kAhead < p.longest)
      prefetch_value(job, job.values + p.value_at[first + k + kAhead]);
    int64_t d = 0;
    for (; d + 16 <= job.value_dim; d += 16) {
      widen<kDtype>(from + d * bytes, bytes, to);
      to += kRun * kCell;
    }
    if (d < job.value_dim) {
      std::byte padded[kCell] = {};
      std::memcpy(padded, from + d * bytes, static_cast<size_t>((job.value_dim - d) * bytes));
      widen<kDtype>(padded, bytes, to);
    }
  }
}

}  // namespace

void value_cells(const Partition& p, int64_t first, int64_t count, std::byte* cells) {
  switch (p.job.dtype) {
    case DType::bf16:
      return value_cells_of<DType::bf16>(p, first, count, cells);
    case DType::f8_e4m3:
      return value_cells_of<DType::f8_e4m3>(p, first, count, cells);
    case DType::f8_e5m2:
      return value_cells_of<DType::f8_e5m2>(p, first, count, cells);
    default:
      return value_cells_of<DType::f32>(p, first, count, cells);
  }
}

namespace {

// Weights and value cells of consecutive units.
struct Operands {
  const uint32_t* weights;  // [units][weights_stride], of the first query
  int64_t weights_stride;
  const std::byte* cells;
  int64_t panel_stride;
};

// values[queries] (+)= weights x values of units [unit, unit + steps). With a window or chunk, too,
// that begins here: from zeros.
void add_units(const Partition& p, const Operands& operands, int64_t unit, int64_t steps,
               const Queries& queries) {
  Product product;
  product.x = operands.weights;
  product.x_stride = operands.weights_stride;
  product.rows = queries.count;
  product.dtype = in_pairs(p.job) ? DType::bf16 : DType::f32;
  product.pairs = in_pairs(p.job);
  product.w = operands.cells;
  product.panel_stride = operands.panel_stride;
  product.panels = p.job.padded_values / 16;
  product.steps = steps;
  product.y = queries.values + queries.first * p.job.padded_values;
  product.y_stride = p.job.padded_values;
  product.resume = unit > 0;
  multiply(product);
}

// One position of a pair; of the other one, which these queries do not see, neither the value nor
// the weight has to be finite.
void add_half(const Partition& p, int64_t run, int64_t position, const Queries& queries) {
  const uint32_t mask = position % 2 == 0 ? 0xffff : 0xffff0000;
  uint32_t weights[kQueries];
  for (int64_t i = 0; i < queries.count; ++i) {
    weights[i] = p.weights[position / 2 * p.queries + queries.first + i] & mask;
  }
  const std::byte* from = p.cells + (position - run) / 2 * kCell;
  std::byte* half = p.cells + p.job.padded_values / 16 * kPairPanel;  // behind all pairs
  for (int64_t panel = 0; panel < p.job.padded_values / 16; ++panel) {
    for (int64_t i = 0; i < kCell; i += kLanes * 4) {
      store(half + panel * kCell + i, load_bits(from + panel * kPairPanel + i) & mask);
    }
  }
  add_units(p, {weights, queries.count, half, kCell}, position / 2, 1, queries);
}

// values[queries] (+)= weights x values of positions [begin, end) of the run at `run`.
void add_values(const Partition& p, int64_t run, int64_t begin, int64_t end,
                const Queries& queries) {
  const auto add = [&](int64_t unit, int64_t steps, const std::byte* cells, int64_t panel_stride) {
    const uint32_t* weights = p.weights + unit * p.queries + queries.first;
    add_units(p, {weights, p.queries, cells, panel_stride}, unit, steps, queries);
  };
  if (begin >= end) return;
  if (without_cells(p)) return add_stored(p, begin, end, queries);
  if (!in_pairs(p.job)) {
    return add(begin, end - begin, p.cells + (begin - run) * kCell, kRun * kCell);
  }
  if (begin % 2 != 0) add_half(p, run, begin++, queries);
  if (end - begin >= 2) {
    add(begin / 2, (end - begin) / 2, p.cells + (begin - run) / 2 * kCell, kPairPanel);
  }
  if (begin < end && end % 2 != 0) add_half(p, run, end - 1, queries);
}

// Rows [row, row + rows) of the active ones: together over the positions that all of them attend
// to, each alone before and after these, so that none touches what it may not see.
void weigh_run(const Partition& p, int64_t run, int64_t row, int64_t rows, float* values) {
  const int64_t heads = p.job.heads;
  const int64_t end = smaller(run + kRun, p.longest);
  const int64_t first = p.first_row + row, last = first + rows - 1;
  int64_t low = smaller(larger(p.unseen(last), run), end);
  int64_t high = smaller(p.count(first), end);
  if (in_pairs(p.job)) {
    low += low % 2;
    high -= high % 2;
  }
  high = larger(high, low);
  for (int64_t i = row; i < row + rows; ++i) {
    const int64_t begin = larger(p.unseen(p.first_row + i), run);
    const int64_t count = smaller(p.count(p.first_row + i), end);
    add_values(p, run, begin, smaller(low, count), {i * heads, heads, values});
  }
  add_values(p, run, low, high, {row * heads, rows * heads, values});
  for (int64_t i = row; i < row + rows; ++i) {
    const int64_t count = smaller(p.count(p.first_row + i), end);
    add_values(p, run, high, count, {i * heads, heads, values});
  }
}

}  // namespace

void weigh_values(const Partition& p, float* values) {
  const int64_t active = p.job.rows - p.first_row;
  const int64_t together = kTileRows / p.job.heads > 0 ? kTileRows / p.job.heads : 1;
  if (p.job.window > 0 || p.job.chunk > 0) {
    std::memset(values, 0, static_cast<size_t>(p.queries * p.job.padded_values) * sizeof(float));
  }
  for (int64_t run = p.first / 2 * 2; run < p.longest; run += kRun) {
    if (!without_cells(p)) value_cells(p, run, smaller(kRun, p.longest - run), p.cells);
    for (int64_t row = 0; row < active; row += together) {
      weigh_run(p, run, row, smaller(together, active - row), values);
    }
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
