// Linear layers of grouped codes and blocks (docs/architecture.md, "Determinism"): of each output a
// group's products are summed from zero in column order, then scaled, then less the sum of the
// group's inputs times its minimum; groups are added in order. Output channels lie across lanes.
//
// Columns of a panel are decoded into scratch, once for all rows, and multiplied there. Few rows of
// 4-bit codes are decoded in registers instead, with the same products in the same order.
#include "kernels/cpu/simd/blocks.h"
#include "kernels/cpu/simd/functions.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int kVectors = static_cast<int>(16 / kLanes);  // of a panel's rows
constexpr int64_t kCell = 64;                            // bytes
// Prefetch distance of stored codes.
constexpr int64_t kAheadBytes = 4096;

#if defined(__AVX512F__)
constexpr int kMostRows = 8;
#elif defined(__AVX2__)
constexpr int kMostRows = 4;
#else
constexpr int kMostRows = 2;
#endif

constexpr int64_t kMostGroups = kGroupedCols / 16;  // whose scales are decoded at a time

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

// A thread's scratch.
struct Scratch {
  Scratch(std::byte* at, int64_t rows)
      : cells(at),
        scales(reinterpret_cast<float*>(at + kGroupedCols * 32)),
        mins(scales + kGroupedCols / 16 * 16),
        totals(mins + kGroupedCols / 16 * 16),
        partial(totals + rows * 16) {}
  std::byte* cells;
  float* scales;
  float* mins;
  float* totals;   // [rows][16], of the panel
  float* partial;  // [rows][16], of a group that is interrupted
};

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
  const int64_t count = smaller(smaller(most / wide, kMostGroups) * wide, job.cols - first);
  const int64_t groups = smaller((count + wide - 1) / wide, job.groups - group);
  return {first, count, group, groups, true, true};
}

// Products that take a cell of bf16 pairs.
struct FloatUnits {
  static constexpr int kUnits = 2;  // of x, to a pair of columns
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
    if (job.pairs) {
      multiply_rows<PairUnits, kMostRows>(job, columns, scratch, tile, row, tile.rows - row);
      continue;
    }
#endif
    if (job.wide) {
      multiply_rows<WideUnits, kMostRows>(job, columns, scratch, tile, row, tile.rows - row);
    } else {
      multiply_rows<FloatUnits, kMostRows>(job, columns, scratch, tile, row, tile.rows - row);
    }
  }
}

// Scale and zero of kLanes rows of a group of grouped codes.
struct GroupScale {
  Vf scale, min;
};
Vf scale_as_stored(const GroupedJob& job, int64_t at) {
  switch (job.scale_type) {
    case DType::f32:
      return as_floats(load_bits(job.scales + at * 4));
    case DType::bf16:
      return as_floats(load_u16(job.scales + at * 2) << 16);
    case DType::f8_e8m0: {
      const Vu code = load_u8(job.scales + at);  // the least is a subnormal number, 255 NaN
      const Vu odd = reinterpret_cast<Vu>(code == 0) | reinterpret_cast<Vu>(code == 255);
      return as_floats(code << 23 | (odd & 0x00400000));
    }
    case DType::f8_e4m3:
      return eight_bit_floats(load_u8(job.scales + at));
    case DType::u8: {
      float of[kLanes];
      for (int i = 0; i < kLanes; ++i)
        of[i] = job.scale_values[static_cast<uint8_t>(job.scales[at + i])];
      return load(of);
    }
    default:
      return f16_to_float(load_u16(job.scales + at * 2));
  }
}
GroupScale group_scale(const GroupedJob& job, int64_t panel, int64_t group, int64_t lane) {
  const int64_t at = (panel * job.groups + group) * 16 + lane;
  Vf scale = scale_as_stored(job, at);
  if (job.outer != Outer::none) {
    Vf outer = Vf{};
    if (job.outer_groups == 0) {
      outer += job.outers[panel];
    } else {
      const int64_t each = (job.groups + job.outer_groups - 1) / job.outer_groups;
      outer = load(job.outers + (panel * each + group / job.outer_groups) * 16 + lane);
    }
    scale = job.outer == Outer::multiplies ? scale * outer : scale / outer;
  }
  if (job.scale_type == DType::u8) scale += job.scale_values[kScaleValues];
  if (job.table != CodeTable::integers) return {scale, Vf{}};
  Vf zero = Vf{} + static_cast<float>(job.zero_base);
  if (job.zeros != nullptr) zero += floats(load_u8(job.zeros + at));
  return {scale, scale * zero};
}

void decode_codes(const GroupedJob& job, const BlockRows& rows) {
  switch (job.table) {
    case CodeTable::e2m1:
      return decode_float_run(rows);
    case CodeTable::e4m3:
      return decode_e4m3_run(rows);
    case CodeTable::own:
      return decode_own_run(rows, job.values, job.wide);
    default:
      decode_run(rows, job.bits);
  }
}

void decode_columns(const GroupedJob& job, int64_t panel, const Columns& columns,
                    const Scratch& scratch) {
  const std::byte* from =
      job.codes + (panel * job.cols + columns.first) / job.block_cols * job.block_bytes;
  const int64_t group_step = job.block_cols / job.group_cols;  // groups of a block
  for (int64_t lane = 0; lane < 16; lane += kLanes) {
    const std::byte* block = from;
    DecodedGroups to{scratch.cells, scratch.scales, scratch.mins};
    for (int64_t col = 0; col < columns.count; col += job.block_cols) {
      const BlockRows rows{block, to, lane, job.grid, job.code_values};
      if (lane == 0) __builtin_prefetch(block + kAheadBytes);
      if (job.type == DType::u8) {
        decode_codes(job, rows);
      } else {
        decode_block(rows, job.type);
        to.scales += group_step * 16;
        to.mins += group_step * 16;
      }
      to.cells += job.block_cols * (job.wide ? 64 : 32);
      block += job.block_bytes;
    }
    for (int64_t g = 0; job.type == DType::u8 && columns.ends && g < columns.groups; ++g) {
      const GroupScale s = group_scale(job, panel, columns.group + g, lane);
      store(scratch.scales + g * 16 + lane, s.scale);
      store(scratch.mins + g * 16 + lane, s.min);
    }
  }
}

// A panel's sums [rows][16], times the scale of each row, and with the bias, into y.
void finish_panel(const GroupedJob& job, int64_t panel, const float* totals) {
  for (int64_t row = 0; row < job.rows; ++row) {
    for (int64_t lane = 0; lane < 16; lane += kLanes) {
      Vf sum = load(totals + row * 16 + lane);
      if (job.row_scales != nullptr) sum *= load(job.row_scales + panel * 16 + lane);
      if (job.bias != nullptr) sum += load(job.bias + panel * 16 + lane);
      store(job.y + row * job.y_stride + panel * 16 + lane, sum);
    }
  }
}

void multiply_decoded(const GroupedJob& job, int64_t panel, const Scratch& scratch) {
  const int64_t unit_cols = job.pairs ? 2 : 1;
  for (int64_t i = 0; i < job.rows * 16; i += kLanes) store(scratch.totals + i, Vf{});
  for (int64_t first = 0; first < job.cols;) {
    const Columns columns = columns_from(job, first);
    decode_columns(job, panel, columns, scratch);
    for (int64_t row = 0; row < job.rows; row += job.tile_rows) {
      const int64_t rows = smaller(job.tile_rows, job.rows - row);
      multiply_tile(job, columns, scratch,
                    {job.x + row * job.units + first / unit_cols * rows, rows,
                     job.x_sums + row * job.groups + columns.group, row, rows});
    }
    first += columns.count;
  }
}

#if defined(__AVX512BF16__)

// Rows for which 4-bit codes are decoded in registers.
constexpr int64_t kDecodingRows = 4;

// Nibbles as bf16. A lookup takes five bits, of which the upper one is the next nibble's.
inline Vu nibble_table(CodeTable table, const float* own) {
  constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  alignas(64) uint16_t codes[32];
  for (int i = 0; i < 32; ++i) {
    const float sign = i % 16 < 8 ? 1.0f : -1.0f;
    const float value = table == CodeTable::e2m1  ? sign * kValues[i % 8]
                        : table == CodeTable::own ? own[i % 16]
                                                  : static_cast<float>(i % 16);
    codes[i] = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, value) >> 16);
  }
  return load_bits(codes);
}
template <int kShift>
inline Vu nibbles(Vu table, Vu word) {
  using Halves [[gnu::vector_size(64)]] = uint16_t;
  const Halves shifted = reinterpret_cast<Halves>(word) >> kShift;
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
    __builtin_prefetch(from + p * apart + kAheadBytes);
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

template <int kRows, int kPanels>
void multiply_q4_k(const GroupedJob& job, int64_t panel, const Scratch& scratch) {
  constexpr int kGroups = 8;  // of a block
  const Vu table = nibble_table(CodeTable::integers, nullptr);
  const int64_t blocks = job.cols / 256, apart = blocks * job.block_bytes;
  Vf totals[kPanels][kRows] = {};
  for (int64_t b = 0; b < blocks; ++b) {
    const std::byte* block = job.codes + (panel * blocks + b) * job.block_bytes;
    for (int p = 0; p < kPanels; ++p) {
      const int64_t first = p * kGroups * 16;
      scales_of_k({block + p * apart, {nullptr, scratch.scales + first, scratch.mins + first}, 0});
    }
    for (int part = 0; part < 4; ++part) {  // 64 columns
      Vf low[kPanels][kRows] = {}, high[kPanels][kRows] = {};
      const uint32_t* x = job.x + (b * 128 + part * 32) * kRows;
#pragma GCC unroll 8
      for (int w = 0; w < 8; ++w, x += 2 * kRows) {
        Vu words[kPanels];
        load_words(block + (4 + part * 8 + w) * kCell, apart, words);
        add_nibbles<0>(low, table, words, x);
        add_nibbles<8>(low, table, words, x + kRows);
        add_nibbles<4>(high, table, words, x + 16 * kRows);
        add_nibbles<12>(high, table, words, x + 17 * kRows);
      }
      for (int p = 0; p < kPanels; ++p) {
        for (int r = 0; r < kRows; ++r) {
          const int64_t g = (p * kGroups + part * 2) * 16;
          const float* x_sums = job.x_sums + r * job.groups + b * kGroups + part * 2;
          totals[p][r] = add_group(totals[p][r], low[p][r], load(scratch.scales + g), x_sums,
                                   scratch.mins + g);
          totals[p][r] = add_group(totals[p][r], high[p][r], load(scratch.scales + g + 16),
                                   x_sums + 1, scratch.mins + g + 16);
        }
      }
    }
  }
  store_totals(totals, job, panel);
}

// Grouped codes of 4 bits.
template <int kRows, int kPanels>
void multiply_nibbles(const GroupedJob& job, int64_t panel, const Scratch& scratch) {
  const Vu table = nibble_table(job.table, job.values);
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
      store(scratch.mins, s.min);
      for (int r = 0; r < kRows; ++r)
        totals[p][r] = add_group(totals[p][r], sums[p][r], s.scale, job.x_sums + r * job.groups + g,
                                 job.mins ? scratch.mins : nullptr);
    }
  }
  store_totals(totals, job, panel);
}

// Blocks of four-bit codes that are looked up.
template <int kRows, int kPanels>
void multiply_nibble_blocks(const GroupedJob& job, int64_t panel, const Scratch& scratch) {
  const Vu table = load_bits(job.code_values);  // whose second half is like its first
  const NibbleBlock kind = nibble_block(job.type);
  const int64_t blocks = job.cols / job.block_cols, apart = blocks * job.block_bytes;
  const uint32_t* x = job.x;
  Vf totals[kPanels][kRows] = {};
  for (int64_t b = 0; b < blocks; ++b) {
    const std::byte* block = job.codes + (panel * blocks + b) * job.block_bytes;
    for (int p = 0; p < kPanels; ++p) {
      const DecodedGroups to{nullptr, scratch.scales + p * kind.groups * 16, nullptr};
      scales_of_nibbles({block + p * apart, to, 0}, job.type);
    }
    const std::byte* from = block + kind.first_word * kCell;
    for (int g = 0; g < kind.groups; ++g, from += kind.words * kCell) {
      Vf sums[kPanels][kRows] = {};
      Vu words[kPanels];
      for (int w = 0; w < kind.words; ++w, x += 2 * kRows) {
        load_words(from + w * kCell, apart, words);
        add_nibbles<0>(sums, table, words, x);
        add_nibbles<8>(sums, table, words, x + kRows);
      }
      for (int w = 0; w < kind.words; ++w, x += 2 * kRows) {
        load_words(from + w * kCell, apart, words);
        add_nibbles<4>(sums, table, words, x);
        add_nibbles<12>(sums, table, words, x + kRows);
      }
      for (int p = 0; p < kPanels; ++p) {
        const Vf scale = load(scratch.scales + (p * kind.groups + g) * 16);
        for (int r = 0; r < kRows; ++r)
          totals[p][r] = add_group(totals[p][r], sums[p][r], scale, nullptr, nullptr);
      }
    }
  }
  store_totals(totals, job, panel);
}

// Panels that are multiplied side by side, so that no sum waits for the one before it.
template <int kRows>
constexpr int kSideBySide = kRows <= 2 ? 4 : 2;
template <int kRows, int kPanels>
void multiply_panels(const GroupedJob& job, int64_t panel, const Scratch& scratch) {
  // Scratch has room for the scales of two panels' blocks.
  constexpr int kBlocks = kPanels < 2 ? kPanels : 2;
  if (job.type == DType::u8) return multiply_nibbles<kRows, kPanels>(job, panel, scratch);
  for (int p = 0; p < kPanels; p += kBlocks) {
    job.type == DType::q4_k ? multiply_q4_k<kRows, kBlocks>(job, panel + p, scratch)
                            : multiply_nibble_blocks<kRows, kBlocks>(job, panel + p, scratch);
  }
}

template <int kRows>
int64_t multiply_in_registers(const GroupedJob& job, int64_t panel, int64_t panels,
                              const Scratch& scratch) {
  if constexpr (kRows == 0) {
    return 0;
  } else {
    if (job.rows != kRows) return multiply_in_registers<kRows - 1>(job, panel, panels, scratch);
    if (panels >= kSideBySide<kRows>)
      return multiply_panels<kRows, kSideBySide<kRows>>(job, panel, scratch), kSideBySide<kRows>;
    return multiply_panels<kRows, 1>(job, panel, scratch), 1;
  }
}

// Multiplies some of `panels` panels and returns how many; none where they are to be decoded.
int64_t multiply_few(const GroupedJob& job, int64_t panel, int64_t panels, const Scratch& scratch) {
  const bool four_bits = job.type == DType::q4_k || is_nibble_block(job.type) ||
                         (job.type == DType::u8 && job.bits == 4);
  if (!job.pairs || !four_bits) return 0;
  return multiply_in_registers<kDecodingRows>(job, panel, panels, scratch);
}

#else

int64_t multiply_few(const GroupedJob&, int64_t, int64_t, const Scratch&) { return 0; }

#endif

}  // namespace

void grouped(const GroupedJob& job, int64_t begin, int64_t end, std::byte* scratch) {
  const Scratch parts(scratch, job.rows);
  for (int64_t panel = begin; panel < end;) {
    const int64_t done = multiply_few(job, panel, end - panel, parts);
    panel += done;
    if (done > 0) continue;
    multiply_decoded(job, panel, parts);
    finish_panel(job, panel++, parts.totals);
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
