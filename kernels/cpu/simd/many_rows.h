// Many rows times codes that are decoded once for all of them, to unsigned bytes, and multiplied by
// the bytes of inputs, three of each or one (kernels/grouped_sum.h). What is added to codes to make
// them unsigned is taken off exactly.
//
// A product of bytes has four columns, one of bf16 two: three bytes take 3/2 of the products that
// bf16 takes. So little else may be done beside. A row has one register: the sum of the uppermost
// byte's products is shifted by eight bits, the middle byte's are added to it, and so are the
// lowest's where that fits 32 bits. Inputs are broadcast from memory by the products themselves,
// and the codes of a segment of 16 or 32 columns stay in registers for all three bytes.
#pragma once

#include "kernels/cpu/simd/decode_columns.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

#if defined(__AVX512VNNI__)

// Rows of a tile, by registers: with the codes of a segment, or with the upper parts of sums.
constexpr int64_t kNarrowRows = 12, kWideRows = 8;

// A segment of a panel, and some rows.
struct ByteSegment {
  const std::byte* codes;  // cells of four columns
  int64_t words;           // of a row of x, of four columns
  const uint32_t* x;       // L; M and T are 64 and 128 words behind; rows 192 apart, or without
                           // M and T 64
  const int32_t* starts;   // as in WholeJob; null: zeros
  const float* x_sums;     // null: no minimums
  int64_t segments;        // from a row's starts and sums to the next one's
  const float* scale;      // [16]
  const float* min;        // [16]
  float* sums;             // [rows][16]

  Vu start(int row, int part) const {
    return starts == nullptr ? Vu{}
                             : Vu{} + static_cast<uint32_t>(starts[row * segments * 4 + part]);
  }
};

inline Vu add_bytes(Vu sum, Vu codes, uint32_t x) {
  return reinterpret_cast<Vu>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum),
                                                  reinterpret_cast<__m512i>(codes),
                                                  reinterpret_cast<__m512i>(Vu{} + x)));
}

template <int kRows>
inline void add_values(const ByteSegment& s, const Vf (&values)[kRows]) {
  const Vf scale = load(s.scale);
  if (s.x_sums == nullptr) {
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r)
      store(s.sums + r * 16, load(s.sums + r * 16) + values[r] * scale);
    return;
  }
  const Vf min = load(s.min);
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r)
    store(s.sums + r * 16,
          load(s.sums + r * 16) + (values[r] * scale - s.x_sums[r * s.segments] * min));
}

// Sums of all three bytes fit 32 bits: converting one rounds once, as whole_value() does.
template <int kRows, int kWords>
[[gnu::noinline]] void add_narrow(const ByteSegment& s) {
  Vu codes[kWords], of[kRows] = {};
#pragma GCC unroll 8
  for (int w = 0; w < kWords; ++w) codes[w] = load_bits(s.codes + w * kCell);
#pragma GCC unroll 3
  for (int part = 2; part >= 0; --part) {
#pragma GCC unroll 8
    for (int w = 0; w < kWords; ++w) {
#pragma GCC unroll 12
      for (int r = 0; r < kRows; ++r)
        of[r] = add_bytes(of[r], codes[w], s.x[r * 192 + part * 64 + w]);
    }
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) of[r] = part > 0 ? of[r] << 8 : of[r] + s.start(r, 3);
  }
  Vf values[kRows];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r)
    values[r] = __builtin_convertvector(reinterpret_cast<Vi>(of[r]), Vf);
  add_values<kRows>(s, values);
}

// Inputs of one byte.
template <int kRows>
[[gnu::noinline]] void add_one_byte(const ByteSegment& s) {
  Vu of[kRows];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r) of[r] = s.start(r, 0);
#pragma GCC unroll 4
  for (int64_t w = 0; w < s.words; ++w) {
    const Vu codes = load_bits(s.codes + w * kCell);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) of[r] = add_bytes(of[r], codes, s.x[r * 64 + w]);
  }
  Vf values[kRows];
#pragma GCC unroll 12
  for (int r = 0; r < kRows; ++r)
    values[r] = __builtin_convertvector(reinterpret_cast<Vi>(of[r]), Vf);
  add_values<kRows>(s, values);
}

template <int kRows>
inline void add_words(const ByteSegment& s, int part, Vu (&of)[kRows]) {
  const uint32_t* x = s.x + part * 64;
#pragma GCC unroll 4
  for (int64_t w = 0; w < s.words; ++w) {
    const Vu codes = load_bits(s.codes + w * kCell);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) of[r] = add_bytes(of[r], codes, x[r * 192 + w]);
  }
}

template <int kRows>
[[gnu::noinline]] void add_wide(const ByteSegment& s) {
  Vu of[kRows];
  Vf values[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) of[r] = s.start(r, 2);
  add_words<kRows>(s, 2, of);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) of[r] = (of[r] << 8) + s.start(r, 1);
  add_words<kRows>(s, 1, of);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    values[r] = __builtin_convertvector(reinterpret_cast<Vi>(of[r]), Vf);
    of[r] = s.start(r, 0);
  }
  add_words<kRows>(s, 0, of);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
    values[r] =
        fma(values[r], splat(256), __builtin_convertvector(reinterpret_cast<Vi>(of[r]), Vf));
  add_values<kRows>(s, values);
}

// Some rows of a block of integers and one of the decoded panels.
struct ByteTile {
  int64_t block;
  int64_t first_row;
  int64_t panel;
};
constexpr int64_t kByteCells = kGroupedCols / 4 * kCell;  // bytes of a panel's block
inline std::byte* byte_cells(const Scratch& scratch, int64_t panel) {
  return scratch.cells + Scratch::kPanelBytes + panel * kByteCells;  // behind pairs
}
static_assert(Scratch::kPanelBytes + kGroupedPanels * kByteCells <=
              kGroupedPanels * Scratch::kPanelBytes);

template <int kRows>
void multiply_byte_tile(const GroupedJob& job, const Scratch& scratch, ByteTile at,
                        void (*add)(const ByteSegment&)) {
  alignas(64) float sums[kRows * 16] = {};
  const int64_t first = at.block * kBlockCols, end = block_end(job, at.block);
  const int64_t row = at.block * job.rows + at.first_row;
  int64_t s = 0, group_end = (first / job.group_cols + 1) * job.group_cols;
  for (int64_t begin = first; begin < end; ++s, group_end += job.group_cols) {
    const int64_t segment_end = smaller(group_end, end);
    const int64_t word = (begin - first) / 4, number = row * job.segments + s;
    const int64_t scale_at = (at.panel * kMostGroups + s) * 16;
    add({.codes = byte_cells(scratch, at.panel) + word * kCell,
         .words = (segment_end - begin) / 4,
         .x = job.x + row * whole_words(job.inputs) + word,
         .starts = job.starts == nullptr ? nullptr : job.starts + number * 4,
         .x_sums = job.mins ? job.x_sums + number : nullptr,
         .segments = job.segments,
         .scale = scratch.scales + scale_at,
         .min = scratch.mins + scale_at,
         .sums = sums});
    begin = segment_end;
  }
  for (int r = 0; r < kRows; ++r) {
    float* total = scratch.totals + (at.panel * job.rows + at.first_row + r) * 16;
    store(total, load(total) + load(sums + r * 16) * job.factors[row + r]);
  }
}

template <int kRows>
void multiply_byte_tiles(const GroupedJob& job, const Scratch& scratch, ByteTile at, int64_t rows,
                         int64_t panels) {
  if constexpr (kRows >= kByteRows) {  // tiles of more rows have no fewer
    if (rows != kRows) return multiply_byte_tiles<kRows - 1>(job, scratch, at, rows, panels);
    void (*add)(const ByteSegment&) = nullptr;
    if (job.inputs == GroupedInputs::one_byte) add = add_one_byte<kRows>;
    if (job.narrow_words == 8) add = add_narrow<kRows, 8>;
    if (job.narrow_words == 4) add = add_narrow<kRows, 4>;
    if constexpr (kRows <= kWideRows) {
      if (add == nullptr) add = add_wide<kRows>;
    }
    for (at.panel = 0; at.panel < panels; ++at.panel)
      multiply_byte_tile<kRows>(job, scratch, at, add);
  }
}

// Decodes a block of a panel to bytes: columns (0, 2, 1, 3) of four.
inline void decode_byte_block(const GroupedJob& job, int64_t panel, int64_t block, int64_t slot,
                              const Scratch& scratch) {
  decode_whole_block(job, panel, block,
                     {scratch.cells, scratch.scales + slot * kMostGroups * 16,
                      scratch.mins + slot * kMostGroups * 16});
  std::byte* to = byte_cells(scratch, slot);
  const Vu sign = Vu{} + (job.zero != 0 ? 0x80808080 : 0);
  const int64_t words = smaller(kBlockCols, job.cols - block * kBlockCols) / 4;
  for (int64_t w = 0; w < words; ++w) {
    const Vu first = load_bits(scratch.cells + 2 * w * kCell);
    const Vu second = load_bits(scratch.cells + (2 * w + 1) * kCell);
    store(to + w * kCell, ((first & 0x00ff00ff) | (second << 8 & 0xff00ff00)) ^ sign);
  }
}

// Panels [begin, end), some of which share the inputs of a block.
inline void multiply_many_bytes(const GroupedJob& job, int64_t begin, int64_t end,
                                const Scratch& scratch) {
  const bool narrow = job.narrow_words > 0 || job.inputs == GroupedInputs::one_byte;
  const int64_t most_rows = narrow ? kNarrowRows : kWideRows;
  const int64_t tiles = (job.rows + most_rows - 1) / most_rows;
  for (int64_t panel = begin; panel < end; panel += kGroupedPanels) {
    const int64_t panels = smaller(kGroupedPanels, end - panel);
    for (int64_t i = 0; i < panels * job.rows * 16; i += kLanes) store(scratch.totals + i, Vf{});
    for (int64_t b = 0; b < whole_blocks(job); ++b) {
      for (int64_t p = 0; p < panels; ++p) decode_byte_block(job, panel + p, b, p, scratch);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t row = job.rows * tile / tiles, next = job.rows * (tile + 1) / tiles;
        multiply_byte_tiles<kNarrowRows>(job, scratch, {b, row, 0}, next - row, panels);
      }
    }
    for (int64_t p = 0; p < panels; ++p)
      finish_panel(job, panel + p, scratch.totals + p * job.rows * 16);
  }
}

#else

inline void multiply_many_bytes(const GroupedJob&, int64_t, int64_t, const Scratch&) {}

#endif

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
