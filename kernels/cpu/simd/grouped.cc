// Linear layers of grouped codes and blocks. Codes that are integers are summed as
// kernels/grouped_sum.h says; others, and float32 inputs: of each output a group's products are
// summed from zero in column order, then scaled, then less the sum of the group's inputs times its
// minimum; groups are added in order. Output channels lie across lanes.
//
// Columns of a panel are decoded into scratch, once for all rows, and multiplied there. With the
// same sums some codes are decoded in registers instead, for few rows (few_rows.h), and many rows
// are multiplied as bytes (many_rows.h). multiply_nibbles is for few rows of other codes.
#include "kernels/cpu/simd/decode_columns.h"
#include "kernels/cpu/simd/few_rows.h"
#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/many_rows.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int kVectors = static_cast<int>(16 / kLanes);  // of a panel's rows

#if defined(__AVX512F__)
constexpr int kMostRows = 8;
constexpr int kWholeRows = 6;  // of two panels; sums of integers take two registers
#elif defined(__AVX2__)
constexpr int kMostRows = 4;
constexpr int kWholeRows = 4;
#else
constexpr int kMostRows = 2;
constexpr int kWholeRows = 2;
#endif

// Some columns of a row: whole groups, or a part of one.
struct Columns {
  int64_t first, count;
  int64_t group, groups;
  bool begins, ends;  // of the group
};
Columns columns_from(const GroupedJob& job, int64_t first) {
  const int64_t group = first / job.group_cols, wide = job.group_cols;
  const int64_t most = job.wide ? kGroupedCols / 2 : kGroupedCols;
  if (wide > most) {
    const int64_t left = smaller(wide * (group + 1), job.cols) - first;
    const int64_t count = smaller(left, most);
    return {first, count, group, 1, first == group * wide, count == left};
  }
  const int64_t count = smaller(most / wide * wide, job.cols - first);
  const int64_t groups = smaller((count + wide - 1) / wide, job.groups - group);
  return {first, count, group, groups, true, true};
}

// Products that take a cell of integers.
struct IntegerUnits {
  static constexpr int kUnits = 2;  // of x, to a pair of columns
  static constexpr int64_t kBytes = kCell;
  static Vf add(Vf sum, const std::byte* cells, const uint32_t* x, int64_t stride) {
    const auto pair = reinterpret_cast<Vi>(load_bits(cells));
    sum = fma(as_floats(Vu{} + x[0]), __builtin_convertvector((pair << 16) >> 16, Vf), sum);
    return fma(as_floats(Vu{} + x[stride]), __builtin_convertvector(pair >> 16, Vf), sum);
  }
};
// Products that take a cell of bf16 pairs.
struct FloatUnits {
  static constexpr int kUnits = 2;
  static constexpr int64_t kBytes = kCell;
  static Vf add(Vf sum, const std::byte* cells, const uint32_t* x, int64_t stride) {
    const Vu pair = load_bits(cells);
    sum = fma(as_floats(Vu{} + x[0]), as_floats(pair << 16), sum);
    return fma(as_floats(Vu{} + x[stride]), as_floats(pair & 0xffff0000), sum);
  }
};
// Products of values that bf16 has not, a cell for each column.
struct WideUnits {
  static constexpr int kUnits = 2;
  static constexpr int64_t kBytes = 2 * kCell;
  static Vf add(Vf sum, const std::byte* cells, const uint32_t* x, int64_t stride) {
    sum = fma(as_floats(Vu{} + x[0]), as_floats(load_bits(cells)), sum);
    return fma(as_floats(Vu{} + x[stride]), as_floats(load_bits(cells + kCell)), sum);
  }
};
#if defined(__AVX512BF16__)
struct PairUnits {
  static constexpr int kUnits = 1;
  static constexpr int64_t kBytes = kCell;
  static Vf add(Vf sum, const std::byte* cells, const uint32_t* x, int64_t stride) {
    return add(sum, load_bits(cells), x, stride);
  }
  static Vf add(Vf sum, Vu pair, const uint32_t* x, int64_t) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(pair),
                            reinterpret_cast<__m512bh>(Vu{} + x[0]));
  }
};
#endif

// A tile of rows of x, from its first column at hand on.
struct Tile {
  const uint32_t* x;
  int64_t stride;       // from unit to unit
  const float* x_sums;  // of the columns' first group
  int64_t first_row;    // of the block
  int64_t rows;
};

// total += sum * scale - x_sum * min
inline Vf add_group(Vf total, Vf sum, Vf scale, const float* x_sum, const float* min) {
  Vf value = sum * scale;
  if (min != nullptr) value -= *x_sum * load(min);
  return total + value;
}

template <class Units, int kRows>
void multiply_groups(const GroupedJob& job, const Columns& columns, const Scratch& scratch,
                     const Tile& tile, int64_t row) {
  const uint32_t* x = tile.x + row;
  const std::byte* cells = scratch.cells;
  const int64_t at = (tile.first_row + row) * 16;
  for (int64_t g = 0; g < columns.groups; ++g) {
    Vf sums[kRows][kVectors];
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < kVectors; ++v)
        sums[r][v] = columns.begins ? Vf{} : load(scratch.partial + at + r * 16 + v * kLanes);
    const int64_t cols = smaller(job.group_cols, columns.count - g * job.group_cols);
    for (int64_t pair = 0; pair < cols / 2; ++pair) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const std::byte* from = cells + v * kLanes * 4;
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
          sums[r][v] = Units::add(sums[r][v], from, x + r, tile.stride);
      }
      cells += Units::kBytes;
      x += Units::kUnits * tile.stride;
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) {
        const int64_t to = at + r * 16 + v * kLanes, lane = g * 16 + v * kLanes;
        if (!columns.ends) {
          store(scratch.partial + to, sums[r][v]);
          continue;
        }
        store(scratch.totals + to,
              add_group(load(scratch.totals + to), sums[r][v], load(scratch.scales + lane),
                        tile.x_sums + (row + r) * job.groups + g,
                        job.mins ? scratch.mins + lane : nullptr));
      }
    }
  }
}

template <class Units, int kRows>
void multiply_rows(const GroupedJob& job, const Columns& columns, const Scratch& scratch,
                   const Tile& tile, int64_t row, int64_t rows) {
  if constexpr (kRows > 0) {
    if (rows >= kRows) return multiply_groups<Units, kRows>(job, columns, scratch, tile, row);
    multiply_rows<Units, kRows - 1>(job, columns, scratch, tile, row, rows);
  }
}

void multiply_tile(const GroupedJob& job, const Columns& columns, const Scratch& scratch,
                   const Tile& tile) {
  for (int64_t row = 0; row < tile.rows; row += kMostRows) {
#if defined(__AVX512BF16__)
    if (job.inputs == GroupedInputs::bf16_pairs) {
      multiply_rows<PairUnits, kMostRows>(job, columns, scratch, tile, row, tile.rows - row);
      continue;
    }
#endif
    if (job.wide) {
      multiply_rows<WideUnits, kMostRows>(job, columns, scratch, tile, row, tile.rows - row);
    } else if (job.integers) {
      multiply_rows<IntegerUnits, kMostRows>(job, columns, scratch, tile, row, tile.rows - row);
    } else {
      multiply_rows<FloatUnits, kMostRows>(job, columns, scratch, tile, row, tile.rows - row);
    }
  }
}

void multiply_decoded(const GroupedJob& job, int64_t panel, const Scratch& scratch) {
  const int64_t unit_cols = job.inputs == GroupedInputs::bf16_pairs ? 2 : 1;
  for (int64_t i = 0; i < job.rows * 16; i += kLanes) store(scratch.totals + i, Vf{});
  for (int64_t first = 0; first < job.cols;) {
    const Columns columns = columns_from(job, first);
    decode_columns(job, panel, columns.first, columns.count,
                   {scratch.cells, scratch.scales, scratch.mins});
    for (int64_t g = 0; job.type == DType::u8 && columns.ends && g < columns.groups; ++g)
      store_scale(job, panel, columns.group + g, scratch.scales + g * 16, scratch.mins + g * 16);
    for (int64_t row = 0; row < job.rows; row += job.tile_rows) {
      const int64_t rows = smaller(job.tile_rows, job.rows - row);
      multiply_tile(job, columns, scratch,
                    {job.x + row * job.units + first / unit_cols * rows, rows,
                     job.x_sums + row * job.groups + columns.group, row, rows});
    }
    first += columns.count;
  }
}

// sum + products of pairs of 16-bit integers.
inline Vi add_products(Vi sum, Vu codes, uint32_t pair) {
#if defined(__AVX512VNNI__)
  return reinterpret_cast<Vi>(_mm512_dpwssd_epi32(reinterpret_cast<__m512i>(sum),
                                                  reinterpret_cast<__m512i>(codes),
                                                  reinterpret_cast<__m512i>(Vu{} + pair)));
#elif defined(__AVX2__)
  return sum + reinterpret_cast<Vi>(_mm256_madd_epi16(reinterpret_cast<__m256i>(codes),
                                                      reinterpret_cast<__m256i>(Vu{} + pair)));
#elif defined(__SSE2__)
  return sum + reinterpret_cast<Vi>(_mm_madd_epi16(reinterpret_cast<__m128i>(codes),
                                                   reinterpret_cast<__m128i>(Vu{} + pair)));
#else
  const auto both = reinterpret_cast<Vi>(codes);
  const auto x = static_cast<int32_t>(pair);
  return sum + ((both << 16) >> 16) * static_cast<int16_t>(pair) + (both >> 16) * (x >> 16);
#endif
}

// A block of integers that is multiplied: some rows, and decoded codes of panels side by side.
struct WholeRows {
  int64_t block;
  int64_t first_row;
};

// kUpper: integers have upper parts, as those of 8 bits have not.
template <int kRows, int kPanels, bool kUpper>
void multiply_whole(const GroupedJob& job, const Scratch& scratch, WholeRows at) {
  constexpr int64_t kWords = kBlockCols;  // of a row
  const int64_t first = at.block * kBlockCols, end = block_end(job, at.block);
  const int64_t row = at.block * job.rows + at.first_row;
  for (int64_t lane = 0; lane < 16; lane += kLanes) {
    Vf sums[kPanels][kRows] = {};
    int64_t s = 0;
    for (int64_t begin = first; begin < end; ++s) {
      const Segment segment = segment_from(job, begin, end);
      Vi upper[kPanels][kRows] = {}, lower[kPanels][kRows] = {};
      const uint32_t* x = job.x + row * kWords;
      for (int64_t k = (begin - first) / 2; k < (segment.end - first) / 2; ++k) {
#pragma GCC unroll 2
        for (int p = 0; p < kPanels; ++p) {
          const Vu codes =
              load_bits(scratch.cells + p * Scratch::kPanelBytes + k * kCell + lane * 4);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            if constexpr (kUpper) upper[p][r] = add_products(upper[p][r], codes, x[r * kWords + k]);
            lower[p][r] = add_products(lower[p][r], codes, x[r * kWords + kWords / 2 + k]);
          }
        }
      }
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) {
        const int64_t scale_at = (p * kMostGroups + s) * 16 + lane;
        const Vf scale = load(scratch.scales + scale_at), min = load(scratch.mins + scale_at);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          Vf value = whole_value(upper[p][r], lower[p][r]) * scale;
          if (job.mins) value -= job.x_sums[(row + r) * job.segments + s] * min;
          sums[p][r] += value;
        }
      }
      begin = segment.end;
    }
    for (int p = 0; p < kPanels; ++p) {
      for (int r = 0; r < kRows; ++r) {
        float* total = scratch.totals + (p * job.rows + at.first_row + r) * 16 + lane;
        store(total, load(total) + sums[p][r] * job.factors[row + r]);
      }
    }
  }
}

template <int kRows, int kPanels, bool kUpper>
void multiply_whole_rows(const GroupedJob& job, const Scratch& scratch, WholeRows at,
                         int64_t rows) {
  if constexpr (kRows > 0) {
    if (rows >= kRows) return multiply_whole<kRows, kPanels, kUpper>(job, scratch, at);
    multiply_whole_rows<kRows - 1, kPanels, kUpper>(job, scratch, at, rows);
  }
}

// Panels side by side, so that inputs are loaded once for all.
template <int kPanels, bool kUpper>
void multiply_whole_panels(const GroupedJob& job, int64_t panel, const Scratch& scratch) {
  for (int64_t i = 0; i < kPanels * job.rows * 16; i += kLanes) store(scratch.totals + i, Vf{});
  for (int64_t b = 0; b < whole_blocks(job); ++b) {
    for (int p = 0; p < kPanels; ++p)
      decode_whole_block(
          job, panel + p, b,
          {scratch.cells + p * Scratch::kPanelBytes, scratch.scales + p * kMostGroups * 16,
           scratch.mins + p * kMostGroups * 16});
    for (int64_t row = 0; row < job.rows; row += kWholeRows)
      multiply_whole_rows<kWholeRows, kPanels, kUpper>(job, scratch, {b, row}, job.rows - row);
  }
  for (int p = 0; p < kPanels; ++p)
    finish_panel(job, panel + p, scratch.totals + p * job.rows * 16);
}

// Multiplies some of `panels` panels and returns how many.
template <bool kUpper>
int64_t multiply_some_whole(const GroupedJob& job, int64_t panel, int64_t panels,
                            const Scratch& scratch) {
#if defined(__AVX512F__)
  if (panels >= 2) return multiply_whole_panels<2, kUpper>(job, panel, scratch), 2;
#endif
  (void)panels;
  return multiply_whole_panels<1, kUpper>(job, panel, scratch), 1;
}

#if defined(__AVX512BF16__)

// Nibbles as bf16. A lookup takes five bits, of which the upper one is the next nibble's.
inline Vu nibble_table(const float* own) {
  alignas(64) uint16_t codes[32];
  for (int i = 0; i < 32; ++i)
    codes[i] = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, own[i % 16]) >> 16);
  return load_bits(codes);
}
template <int kShift>
inline Vu nibbles(Vu table, Vu word) {
  using Unsigned [[gnu::vector_size(64)]] = uint16_t;
  const Unsigned shifted = reinterpret_cast<Unsigned>(word) >> kShift;
  return reinterpret_cast<Vu>(_mm512_permutexvar_epi16(reinterpret_cast<__m512i>(shifted),
                                                       reinterpret_cast<__m512i>(table)));
}

// Four pairs of nibbles of some panels' words, of columns 2 k and 2 k + 1 in each of their halves.
template <int kShift, int kRows, int kPanels>
inline void add_nibbles(Vf (&sums)[kPanels][kRows], Vu table, const Vu (&words)[kPanels],
                        const uint32_t* x) {
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
    const Vu pairs = nibbles<kShift>(table, words[p]);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sums[p][r] = PairUnits::add(sums[p][r], pairs, x + r, 0);
  }
}

// A line of each of some panels that lie `apart`.
template <int kPanels>
inline void load_words(const std::byte* from, int64_t apart, Vu (&words)[kPanels]) {
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
    fetch_ahead(from + p * apart);
    words[p] = load_bits(from + p * apart);
  }
}

// totals [panels][rows][16].
template <int kRows, int kPanels>
void store_totals(const Vf (&totals)[kPanels][kRows], const GroupedJob& job, int64_t panel) {
  float sums[kRows * 16];
  for (int p = 0; p < kPanels; ++p) {
    for (int r = 0; r < kRows; ++r) store(sums + r * 16, totals[p][r]);
    finish_panel(job, panel + p, sums);
  }
}

// Grouped codes of 4 bits that stand for floats.
template <int kRows, int kPanels>
void multiply_nibbles(const GroupedJob& job, int64_t panel) {
  const Vu table = nibble_table(job.values);
  const uint32_t* x = job.x;
  const int64_t apart = job.cols / 8 * kCell;
  const std::byte* from = job.codes + panel * apart;
  Vf totals[kPanels][kRows] = {};
  for (int64_t g = 0; g < job.groups; ++g) {
    const int64_t words_of_group = smaller(job.group_cols, job.cols - g * job.group_cols) / 8;
    Vf sums[kPanels][kRows] = {};
#pragma GCC unroll 4
    for (int64_t w = 0; w < words_of_group; ++w, from += kCell, x += 4 * kRows) {
      Vu words[kPanels];
      load_words(from, apart, words);
      add_nibbles<0>(sums, table, words, x);
      add_nibbles<4>(sums, table, words, x + kRows);
      add_nibbles<8>(sums, table, words, x + 2 * kRows);
      add_nibbles<12>(sums, table, words, x + 3 * kRows);
    }
    for (int p = 0; p < kPanels; ++p) {
      const GroupScale s = group_scale(job, panel + p, g, 0);
      for (int r = 0; r < kRows; ++r)
        totals[p][r] = add_group(totals[p][r], sums[p][r], s.scale, nullptr, nullptr);
    }
  }
  store_totals(totals, job, panel);
}

// Panels that are multiplied side by side, so that no sum waits for the one before it.
template <int kRows>
constexpr int kSideBySide = kRows <= 2 ? 4 : 2;

template <int kRows>
int64_t multiply_in_registers(const GroupedJob& job, int64_t panel, int64_t panels) {
  if constexpr (kRows == 0) {
    return 0;
  } else {
    if (job.rows != kRows) return multiply_in_registers<kRows - 1>(job, panel, panels);
    if (panels >= kSideBySide<kRows>)
      return multiply_nibbles<kRows, kSideBySide<kRows>>(job, panel), kSideBySide<kRows>;
    return multiply_nibbles<kRows, 1>(job, panel), 1;
  }
}

// Multiplies some of `panels` panels and returns how many; none where they are to be decoded.
int64_t multiply_few(const GroupedJob& job, int64_t panel, int64_t panels) {
  if (job.inputs != GroupedInputs::bf16_pairs || job.table != CodeTable::own) return 0;
  return multiply_in_registers<kByteRows>(job, panel, panels);
}

#else

int64_t multiply_few(const GroupedJob&, int64_t, int64_t) { return 0; }

#endif

}  // namespace

void grouped(const GroupedJob& job, int64_t begin, int64_t end, std::byte* scratch) {
  const Scratch parts(scratch, job.rows);
  if (job.inputs == GroupedInputs::whole_bytes || job.inputs == GroupedInputs::one_byte) {
    if (job.rows <= kByteRows) return multiply_bytes(job, begin, end, parts);
    return multiply_many_bytes(job, begin, end, parts);
  }
  for (int64_t panel = begin; panel < end;) {
    if (job.inputs == GroupedInputs::whole_pairs) {
      panel += job.rounded ? multiply_some_whole<false>(job, panel, end - panel, parts)
                           : multiply_some_whole<true>(job, panel, end - panel, parts);
      continue;
    }
    const int64_t done = multiply_few(job, panel, end - panel);
    panel += done;
    if (done > 0) continue;
    multiply_decoded(job, panel, parts);
    finish_panel(job, panel++, parts.totals);
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
