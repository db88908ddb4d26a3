// Linear layers of grouped codes and blocks (docs/architecture.md, "Sums"): of each output a
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
// How far ahead stored codes are fetched.
constexpr int64_t kAheadBytes = 4096;

#if defined(__AVX512F__)
constexpr int kMostRows = 8;
#elif defined(__AVX2__)
constexpr int kMostRows = 4;
#else
constexpr int kMostRows = 2;
#endif

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
  if (wide > kGroupedCols) {
    const int64_t left = smaller(wide * (group + 1), job.cols) - first;
    const int64_t count = smaller(left, kGroupedCols);
    return {first, count, group, 1, first == group * wide, count == left};
  }
  const int64_t count = smaller(kGroupedCols / wide * wide, job.cols - first);
  return {first, count, group, (count + wide - 1) / wide, true, true};
}

// Products that take a cell of bf16 pairs.
struct FloatUnits {
  static constexpr int kUnits = 2;  // of x, to a cell
  static Vf add(Vf sum, Vu pair, const uint32_t* x, int64_t stride) {
    sum = fma(as_floats(Vu{} + x[0]), as_floats(pair << 16), sum);
    return fma(as_floats(Vu{} + x[stride]), as_floats(pair & 0xffff0000), sum);
  }
};
#if defined(__AVX512BF16__)
struct PairUnits {
  static constexpr int kUnits = 1;
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
        const Vu w = load_bits(cells + v * kLanes * 4);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) sums[r][v] = Units::add(sums[r][v], w, x + r, tile.stride);
      }
      cells += kCell;
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
    multiply_rows<FloatUnits, kMostRows>(job, columns, scratch, tile, row, tile.rows - row);
  }
}

// Scale and zero of kLanes rows of a group of grouped codes.
struct GroupScale {
  Vf scale, min;
};
GroupScale group_scale(const GroupedJob& job, int64_t panel, int64_t group, int64_t lane) {
  const int64_t at = (panel * job.groups + group) * 16 + lane;
  const Vu bits = load_u16(job.scales + at * 2);
  const Vf scale = job.bf16_scales ? as_floats(bits << 16) : f16_to_float(bits);
  const Vf zero = floats(load_u8(job.zeros + at)) + static_cast<float>(job.zero_base);
  return {scale, scale * zero};
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
      const BlockRows rows{block, to, lane};
      if (lane == 0) __builtin_prefetch(block + kAheadBytes);
      if (job.type == DType::u8) {
        decode_run(rows, job.bits);
      } else {
        decode_block(rows, job.type);
        to.scales += group_step * 16;
        to.mins += group_step * 16;
      }
      to.cells += job.block_cols * 32;
      block += job.block_bytes;
    }
    for (int64_t g = 0; job.type == DType::u8 && columns.ends && g < columns.groups; ++g) {
      const GroupScale s = group_scale(job, panel, columns.group + g, lane);
      store(scratch.scales + g * 16 + lane, s.scale);
      store(scratch.mins + g * 16 + lane, s.min);
    }
  }
}

// A panel's sums, with the bias, into y.
void finish_panel(const GroupedJob& job, int64_t panel, const float* totals) {
  for (int64_t row = 0; row < job.rows; ++row) {
    for (int64_t lane = 0; lane < 16; lane += kLanes) {
      Vf sum = load(totals + row * 16 + lane);
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
inline Vu nibble_table() {
  alignas(64) uint16_t codes[32];
  for (int i = 0; i < 32; ++i)
    codes[i] =
        static_cast<uint16_t>(__builtin_bit_cast(uint32_t, static_cast<float>(i % 16)) >> 16);
  return load_bits(codes);
}
template <int kShift>
inline Vu nibbles(Vu table, Vu word) {
  using Halves [[gnu::vector_size(64)]] = uint16_t;
  const Halves shifted = reinterpret_cast<Halves>(word) >> kShift;
  return reinterpret_cast<Vu>(_mm512_permutexvar_epi16(reinterpret_cast<__m512i>(shifted),
                                                       reinterpret_cast<__m512i>(table)));
}

template <int kRows>
inline void add_pairs(Vf (&sums)[kRows], Vu pairs, const uint32_t* x) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) sums[r] = PairUnits::add(sums[r], pairs, x + r, 0);
}

template <int kRows>
void multiply_q4_k(const GroupedJob& job, int64_t panel, const Scratch& scratch) {
  const Vu table = nibble_table();
  const int64_t blocks = job.cols / 256;
  const uint32_t* x = job.x;
  Vf totals[kRows] = {};
  for (int64_t b = 0; b < blocks; ++b, x += 128 * kRows) {
    const std::byte* block = job.codes + (panel * blocks + b) * job.block_bytes;
    const BlockRows rows{block, {nullptr, scratch.scales, scratch.mins}, 0};
    scales_of_k(rows);
    for (int part = 0; part < 4; ++part) {  // 64 columns
      Vf low[kRows] = {}, high[kRows] = {};
      const uint32_t* at = x + part * 32 * kRows;
#pragma GCC unroll 8
      for (int w = 0; w < 8; ++w) {
        const std::byte* from = block + (4 + part * 8 + w) * kCell;
        __builtin_prefetch(from + kAheadBytes);
        const Vu word = load_bits(from);
        add_pairs(low, nibbles<0>(table, word), at + w * 2 * kRows);
        add_pairs(low, nibbles<8>(table, word), at + (w * 2 + 1) * kRows);
        add_pairs(high, nibbles<4>(table, word), at + (16 + w * 2) * kRows);
        add_pairs(high, nibbles<12>(table, word), at + (17 + w * 2) * kRows);
      }
      for (int r = 0; r < kRows; ++r) {
        const int64_t g = part * 2;
        const float* x_sums = job.x_sums + r * job.groups + b * 8 + g;
        totals[r] = add_group(totals[r], low[r], load(scratch.scales + g * 16), x_sums,
                              scratch.mins + g * 16);
        totals[r] = add_group(totals[r], high[r], load(scratch.scales + g * 16 + 16), x_sums + 1,
                              scratch.mins + g * 16 + 16);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) store(scratch.totals + r * 16, totals[r]);
}

// Grouped codes of 4 bits.
template <int kRows>
void multiply_nibbles(const GroupedJob& job, int64_t panel, const Scratch& scratch) {
  const Vu table = nibble_table();
  const uint32_t* x = job.x;
  const std::byte* from = job.codes + panel * (job.cols / 8) * kCell;
  Vf totals[kRows] = {};
  for (int64_t g = 0; g < job.groups; ++g) {
    const int64_t words = smaller(job.group_cols, job.cols - g * job.group_cols) / 8;
    Vf sums[kRows] = {};
#pragma GCC unroll 4
    for (int64_t w = 0; w < words; ++w) {
      __builtin_prefetch(from + kAheadBytes);
      const Vu word = load_bits(from);
      add_pairs(sums, nibbles<0>(table, word), x);
      add_pairs(sums, nibbles<4>(table, word), x + kRows);
      add_pairs(sums, nibbles<8>(table, word), x + 2 * kRows);
      add_pairs(sums, nibbles<12>(table, word), x + 3 * kRows);
      from += kCell;
      x += 4 * kRows;
    }
    const GroupScale s = group_scale(job, panel, g, 0);
    store(scratch.mins, s.min);
    for (int r = 0; r < kRows; ++r)
      totals[r] =
          add_group(totals[r], sums[r], s.scale, job.x_sums + r * job.groups + g, scratch.mins);
  }
  for (int r = 0; r < kRows; ++r) store(scratch.totals + r * 16, totals[r]);
}

template <int kRows>
bool multiply_in_registers(const GroupedJob& job, int64_t panel, const Scratch& scratch) {
  if constexpr (kRows == 0) {
    return false;
  } else {
    if (job.rows != kRows) return multiply_in_registers<kRows - 1>(job, panel, scratch);
    if (job.type == DType::q4_k) return multiply_q4_k<kRows>(job, panel, scratch), true;
    if (job.type != DType::u8 || job.bits != 4) return false;
    return multiply_nibbles<kRows>(job, panel, scratch), true;
  }
}

bool multiply_few(const GroupedJob& job, int64_t panel, const Scratch& scratch) {
  return job.pairs && multiply_in_registers<kDecodingRows>(job, panel, scratch);
}

#else

bool multiply_few(const GroupedJob&, int64_t, const Scratch&) { return false; }

#endif

}  // namespace

void grouped(const GroupedJob& job, int64_t begin, int64_t end, std::byte* scratch) {
  const Scratch parts(scratch, job.rows);
  for (int64_t panel = begin; panel < end; ++panel) {
    if (!multiply_few(job, panel, parts)) multiply_decoded(job, panel, parts);
    finish_panel(job, panel, parts.totals);
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
