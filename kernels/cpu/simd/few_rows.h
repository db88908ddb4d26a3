// Few rows times codes that are decoded in registers, to unsigned bytes, and multiplied by the
// bytes of inputs, three of each or one (kernels/grouped_sum.h). What is added to codes to make
// them unsigned is taken off at the start of the sums, exactly. kernels/cpu/grouped.cc lists the
// formats.
#pragma once

#include "kernels/cpu/simd/group_scales.h"
#include "kernels/cpu/simd/streams.h"
#include "quant/blocks.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

#if defined(__AVX512VNNI__)

// Sums of each byte of inputs, for each row.
template <int kRows, int kParts>
struct ByteSums {
  Vu of[kRows][kParts];

  // `starts` of a segment, from row to row `apart`; null: zeros.
  void start(const int32_t* starts, int64_t apart) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
      for (int part = 0; part < kParts; ++part)
        of[r][part] =
            starts == nullptr ? Vu{} : Vu{} + static_cast<uint32_t>(starts[r * apart + part]);
  }
  // Adds four columns; x: their word of the first row.
  void add(Vu codes, const uint32_t* x) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
      for (int part = 0; part < kParts; ++part)
        of[r][part] = reinterpret_cast<Vu>(_mm512_dpbusd_epi32(
            reinterpret_cast<__m512i>(of[r][part]), reinterpret_cast<__m512i>(codes),
            reinterpret_cast<__m512i>(Vu{} + x[(r * kParts + part) * 64])));
  }
  Vf value(int row) const {
    if constexpr (kParts == 1) return __builtin_convertvector(reinterpret_cast<Vi>(of[row][0]), Vf);
    const Vu upper = (of[row][2] << 8) + of[row][1];
    return whole_value(reinterpret_cast<Vi>(upper), reinterpret_cast<Vi>(of[row][0]));
  }
};

inline Vu low_nibbles(Vu word) { return word & 0x0f0f0f0f; }
inline Vu high_nibbles(Vu word) { return word >> 4 & 0x0f0f0f0f; }
// Shifts right, or left where `bits` is negative.
inline Vu shifted(Vu word, int bits) { return bits < 0 ? word << -bits : word >> bits; }

// Bytes that nibbles stand for: `values`, more by `zero`.
struct ByteTable {
  ByteTable(const int16_t* values, int zero) {
    alignas(64) uint8_t bytes[64];
    for (int i = 0; i < 64; ++i) bytes[i] = static_cast<uint8_t>(values[i % 16] + zero);
    at = reinterpret_cast<__m512i>(load_bits(bytes));
  }
  Vu of(Vu nibbles) const {
    return reinterpret_cast<Vu>(_mm512_shuffle_epi8(at, reinterpret_cast<__m512i>(nibbles)));
  }
  __m512i at;
};

// Blocks in pieces of words, each of one line of codes or two. Groups of a piece: with kTwoGroups
// each line has its own. kAhead: bytes that lines are fetched ahead.
template <DType kType>
struct ByteBlock;

// Words of nibbles from kFirst on, in pieces of kWords: low nibbles, then high ones.
template <int kFirst, int kWordsOfPiece, int kPiecesOfBlock, bool kGroupsOfLines>
struct NibblePieces {
  static constexpr int kPieces = kPiecesOfBlock, kWords = kWordsOfPiece, kLines = 2;
  static constexpr int64_t kAhead = kAheadBytes;
  static constexpr bool kTwoGroups = kGroupsOfLines;
  static constexpr int group(int piece, int line) { return kTwoGroups ? 2 * piece + line : piece; }
  static constexpr int quad(int piece, int word, int line) {
    return (2 * piece + line) * kWords + word;
  }
  static Vu nibbles(const std::byte* block, int piece, int word, int line) {
    const Vu both = load_bits(block + (kFirst + piece * kWords + word) * kCell);
    return line == 0 ? low_nibbles(both) : high_nibbles(both);
  }
};

template <>
struct ByteBlock<DType::q4_0> : NibblePieces<0, 4, 1, false> {
  explicit ByteBlock(const GroupedJob&) {}
  static void scales(const BlockRows& rows) { rows.set_scale(0, rows.half(4)); }
  static Vu codes(const std::byte* block, int piece, int word, int line) {
    return nibbles(block, piece, word, line);
  }
};
template <>
struct ByteBlock<DType::q4_1> : NibblePieces<1, 4, 1, false> {
  explicit ByteBlock(const GroupedJob&) {}
  static void scales(const BlockRows& rows) { scales_of_q4_1(rows); }
  static Vu codes(const std::byte* block, int piece, int word, int line) {
    return nibbles(block, piece, word, line);
  }
};
template <>
struct ByteBlock<DType::q4_k> : NibblePieces<4, 8, 4, true> {
  explicit ByteBlock(const GroupedJob&) {}
  static void scales(const BlockRows& rows) { scales_of_k(rows); }
  static Vu codes(const std::byte* block, int piece, int word, int line) {
    return nibbles(block, piece, word, line);
  }
};
template <>
struct ByteBlock<DType::q5_k> : NibblePieces<12, 8, 4, true> {
  explicit ByteBlock(const GroupedJob&) {}
  static void scales(const BlockRows& rows) { scales_of_k(rows); }
  static Vu codes(const std::byte* block, int piece, int word, int line) {
    const Vu fifths = load_bits(block + (4 + word) * kCell);
    return nibbles(block, piece, word, line) | (shifted(fifths, 2 * piece + line - 4) & 0x10101010);
  }
};

// Fifth bits of 32 columns that a word has in their order.
struct FifthBits {
  FifthBits() {
    uint32_t bits[16];
    for (uint32_t i = 0; i < 16; ++i)
      bits[i] = ((i & 1) | (i & 4) << 6 | (i & 2) << 15 | (i & 8) << 21) << 4;
    of_four = load(bits);
  }
  // Returns bytes with those of the columns first + (0, 2, 1, 3).
  Vu of(Vu word, int first) const {
    const auto index = reinterpret_cast<__m512i>(word >> first);  // of which four bits count
    return as_bits(_mm512_permutexvar_ps(index, of_four));
  }
  Vf of_four;
};
template <>
struct ByteBlock<DType::q5_0> : NibblePieces<1, 4, 1, false> {
  explicit ByteBlock(const GroupedJob&) {}
  static void scales(const BlockRows& rows) { rows.set_scale(0, rows.half(5)); }
  Vu codes(const std::byte* block, int piece, int word, int line) const {
    return nibbles(block, piece, word, line) | fifth.of(load_bits(block), line * 16 + word * 4);
  }
  FifthBits fifth;
};
template <>
struct ByteBlock<DType::q5_1> : NibblePieces<2, 4, 1, false> {
  explicit ByteBlock(const GroupedJob&) {}
  static void scales(const BlockRows& rows) { scales_of_q4_1(rows); }
  Vu codes(const std::byte* block, int piece, int word, int line) const {
    const Vu fifths = load_bits(block + kCell);
    return nibbles(block, piece, word, line) | fifth.of(fifths, line * 16 + word * 4);
  }
  FifthBits fifth;
};

template <DType kType, class Pieces>
struct TableBlock : Pieces {
  explicit TableBlock(const GroupedJob& job) : table(job.code_values, job.zero) {}
  static void scales(const BlockRows& rows) { scales_of_nibbles(rows, kType); }
  Vu codes(const std::byte* block, int piece, int word, int line) const {
    return table.of(Pieces::nibbles(block, piece, word, line));
  }
  ByteTable table;
};
template <>
struct ByteBlock<DType::iq4_nl> : TableBlock<DType::iq4_nl, NibblePieces<0, 4, 1, false>> {
  using TableBlock::TableBlock;
};
template <>
struct ByteBlock<DType::e2m1_e8m0> : TableBlock<DType::e2m1_e8m0, NibblePieces<0, 4, 1, false>> {
  using TableBlock::TableBlock;
};
template <>
struct ByteBlock<DType::iq4_xs> : TableBlock<DType::iq4_xs, NibblePieces<2, 4, 8, false>> {
  using TableBlock::TableBlock;
};
template <>
struct ByteBlock<DType::e2m1_e4m3> : TableBlock<DType::e2m1_e4m3, NibblePieces<1, 2, 4, false>> {
  using TableBlock::TableBlock;
};

template <>
struct ByteBlock<DType::q8_0> {
  static constexpr int kPieces = 1, kWords = 8, kLines = 1;
  static constexpr int64_t kAhead = kNearBytes;
  static constexpr bool kTwoGroups = false;
  explicit ByteBlock(const GroupedJob&) {}
  static constexpr int group(int, int) { return 0; }
  static constexpr int quad(int, int word, int) { return word; }
  static void scales(const BlockRows& rows) { rows.set_scale(0, rows.half(8)); }
  static Vu codes(const std::byte* block, int, int word, int) {
    return load_bits(block + word * kCell) ^ 0x80808080;
  }
};

// Pieces of 16 columns, each a group. 128 columns are four parts of 32, whose codes have bits in
// the same words: those of a part are some bits above those of the part before.
struct SixteenColumns {
  static constexpr int kPieces = 16, kWords = 4, kLines = 1;
  static constexpr int64_t kAhead = kAheadBytes;
  static constexpr bool kTwoGroups = false;
  static constexpr int group(int piece, int) { return piece; }
  static constexpr int quad(int piece, int word, int) { return piece * 4 + word; }
  static constexpr int half(int piece) { return piece / 8; }
  static constexpr int part(int piece) { return piece % 8 / 2; }
  // Word of a part's eight.
  static constexpr int of_part(int piece, int word) { return piece % 2 * 4 + word; }
};

template <>
struct ByteBlock<DType::q2_k> : SixteenColumns {
  explicit ByteBlock(const GroupedJob&) {}
  static void scales(const BlockRows& rows) { scales_of_q2_k(rows); }
  static Vu codes(const std::byte* block, int piece, int word, int) {
    const Vu four = load_bits(block + (4 + half(piece) * 8 + of_part(piece, word)) * kCell);
    return four >> (part(piece) * 2) & 0x03030303;
  }
};
// The third bits of all eight parts are in the same words.
template <>
struct ByteBlock<DType::q3_k> : SixteenColumns {
  explicit ByteBlock(const GroupedJob&) {}
  static void scales(const BlockRows& rows) { scales_of_q3_k(rows); }
  static Vu codes(const std::byte* block, int piece, int word, int) {
    const int at = of_part(piece, word), eighth = half(piece) * 4 + part(piece);
    const Vu four = load_bits(block + (8 + half(piece) * 8 + at) * kCell);
    const Vu thirds = load_bits(block + at * kCell);
    return (four >> (part(piece) * 2) & 0x03030303) | (shifted(thirds, eighth - 2) & 0x04040404);
  }
};
// Low nibbles of two parts are with those of the next two.
template <>
struct ByteBlock<DType::q6_k> : SixteenColumns {
  explicit ByteBlock(const GroupedJob&) {}
  static void scales(const BlockRows& rows) { scales_of_q6_k(rows); }
  static Vu codes(const std::byte* block, int piece, int word, int) {
    const int at = of_part(piece, word), nibbles = half(piece) * 16 + part(piece) % 2 * 8 + at;
    const Vu both = load_bits(block + nibbles * kCell);
    const Vu high = load_bits(block + (32 + half(piece) * 8 + at) * kCell);
    return (part(piece) < 2 ? low_nibbles(both) : high_nibbles(both)) |
           (shifted(high, part(piece) * 2 - 4) & 0x30303030);
  }
};

template <int kRows, int kPanels>
struct PanelTotals {
  Vf of[kPanels][kRows];

  void finish(const GroupedJob& job, const StreamedPanels& panels) const {
    float sums[kRows * 16];
    for (int p = 0; p < kPanels; ++p) {
      for (int r = 0; r < kRows; ++r) store(sums + r * 16, of[p][r]);
      finish_panel(job, panels.panel(p), sums);
    }
  }
};

// A block of integers of all rows.
template <int kRows, int kParts>
struct ByteInputs {
  ByteInputs(const GroupedJob& job, int64_t b)
      : x(job.x + b * kRows * kParts * 64),
        sums(job.x_sums + b * kRows * job.segments),
        starts(job.starts == nullptr ? nullptr : job.starts + b * kRows * job.segments * 4),
        factors(job.factors + b * kRows),
        segments(job.segments) {}
  const int32_t* start(int64_t s) const { return starts == nullptr ? nullptr : starts + s * 4; }
  // value * scale, less the sum of inputs times the minimum
  Vf scaled(Vf value, int row, int64_t segment, Vf scale, const float* min) const {
    value *= scale;
    if (min != nullptr) value -= sums[row * segments + segment] * load(min);
    return value;
  }

  const uint32_t* x;
  const float* sums;
  const int32_t* starts;
  const float* factors;
  int64_t segments;
};

// One block of stored codes of some panels, from segment `first` of its block of integers on. Its
// lines are fetched in the order of memory, scales with them, one or two at each word.
template <class Kind, int kBlockLines, int kParts, int kRows, int kPanels>
inline void add_byte_block(const GroupedJob& job, const Kind& kind, const std::byte* block,
                           int64_t apart, const ByteInputs<kRows, kParts>& in, int64_t first,
                           const Scratch& scratch, Vf (&sums)[kPanels][kRows]) {
  constexpr int kSums = Kind::kTwoGroups ? 2 : 1, kSteps = Kind::kPieces * Kind::kWords;
  const uint32_t* x = in.x + first * (job.group_cols / 4);
#pragma GCC unroll 2
  for (int p = 0; p < kPanels; ++p) {
    const int64_t at = p * kMostGroups * 16;
    Kind::scales({block + p * apart, {nullptr, scratch.scales + at, scratch.mins + at}, 0});
  }
#pragma GCC unroll 16
  for (int piece = 0; piece < Kind::kPieces; ++piece) {
    ByteSums<kRows, kParts> of[kPanels][kSums];
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 2
      for (int i = 0; i < kSums; ++i)
        of[p][i].start(in.start(first + Kind::group(piece, i)), in.segments * 4);
#pragma GCC unroll 8
    for (int w = 0; w < Kind::kWords; ++w) {
      const int step = piece * Kind::kWords + w;
#pragma GCC unroll 2
      for (int p = 0; p < kPanels; ++p) {
        const std::byte* from = block + p * apart;
#pragma GCC unroll 4
        for (int l = step * kBlockLines / kSteps; l < (step + 1) * kBlockLines / kSteps; ++l)
          fetch_ahead<Kind::kAhead>(from + l * kCell);
#pragma GCC unroll 2
        for (int line = 0; line < Kind::kLines; ++line)
          of[p][line % kSums].add(kind.codes(from, piece, w, line), x + Kind::quad(piece, w, line));
      }
    }
#pragma GCC unroll 2
    for (int p = 0; p < kPanels; ++p)
#pragma GCC unroll 2
      for (int i = 0; i < kSums; ++i) {
        const int g = Kind::group(piece, i);
        const int64_t at = (p * kMostGroups + g) * 16;
        const Vf scale = load(scratch.scales + at);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r)
          sums[p][r] += in.scaled(of[p][i].value(r), r, first + g, scale,
                                  job.mins ? scratch.mins + at : nullptr);
      }
  }
}

template <DType kType, int kParts, int kRows, int kPanels>
void multiply_byte_blocks(const GroupedJob& job, const StreamedPanels& panels,
                          const Scratch& scratch) {
  using Kind = ByteBlock<kType>;
  constexpr int kLines = (Block<kType>::kLayout.bytes * 16 + 63) / 64;
  const Kind kind(job);
  const int64_t blocks = job.cols / job.block_cols, panel_bytes = blocks * job.block_bytes;
  const int64_t in_block = kBlockCols / job.block_cols, apart = panels.apart * panel_bytes;
  const std::byte* block = job.codes + panels.first * panel_bytes;
  PanelTotals<kRows, kPanels> totals{};
  for (int64_t b = 0; b < whole_blocks(job); ++b) {
    const ByteInputs<kRows, kParts> in(job, b);
    Vf sums[kPanels][kRows] = {};
    const int64_t count = smaller(in_block, blocks - b * in_block);
    for (int64_t i = 0; i < count; ++i, block += job.block_bytes)
      add_byte_block<Kind, kLines, kParts>(job, kind, block, apart, in,
                                           i * (job.block_cols / job.group_cols), scratch, sums);
    for (int p = 0; p < kPanels; ++p)
      for (int r = 0; r < kRows; ++r) totals.of[p][r] += sums[p][r] * in.factors[r];
  }
  totals.finish(job, panels);
}

// Grouped codes of four bits, looked up or not, or of eight.
template <int kBits, bool kTable, int kParts, int kRows, int kPanels>
void multiply_byte_runs(const GroupedJob& job, const StreamedPanels& panels,
                        const Scratch& scratch) {
  constexpr int16_t kNone[16] = {};
  const ByteTable table(kTable ? job.code_values : kNone, job.zero);
  const int64_t panel_bytes = job.cols * kBits / 32 * kCell, apart = panels.apart * panel_bytes;
  const std::byte* from = job.codes + panels.first * panel_bytes;
  PanelTotals<kRows, kPanels> totals{};
  for (int64_t b = 0; b < whole_blocks(job); ++b) {
    const ByteInputs<kRows, kParts> in(job, b);
    const uint32_t* x = in.x;
    Vf sums[kPanels][kRows] = {};
    const int64_t end = block_end(job, b);
    int64_t s = 0;
    for (int64_t begin = b * kBlockCols; begin < end; ++s) {
      const Segment segment = segment_from(job, begin, end);
      ByteSums<kRows, kParts> of[kPanels];
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) of[p].start(in.start(s), in.segments * 4);
      const int64_t words = (segment.end - begin) * kBits / 32;
#pragma GCC unroll 2
      for (int64_t w = 0; w < words; ++w, from += kCell, x += 8 / kBits) {
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) {
          fetch_ahead<kBits == 8 ? kNearBytes : kAheadBytes>(from + p * apart);
          const Vu word = load_bits(from + p * apart);
          if (kBits == 8) {
            of[p].add(word, x);
            continue;
          }
          const Vu low = low_nibbles(word), high = high_nibbles(word);
          of[p].add(kTable ? table.of(low) : low, x);
          of[p].add(kTable ? table.of(high) : high, x + 1);
        }
      }
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const GroupScale g = group_scale(job, panels.panel(p), segment.group, 0);
        if (job.mins) store(scratch.mins, g.min);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r)
          sums[p][r] += in.scaled(of[p].value(r), r, s, g.scale, job.mins ? scratch.mins : nullptr);
      }
      begin = segment.end;
    }
    for (int p = 0; p < kPanels; ++p)
      for (int r = 0; r < kRows; ++r) totals.of[p][r] += sums[p][r] * in.factors[r];
  }
  totals.finish(job, panels);
}

template <int kParts, int kRows, int kPanels>
void multiply_byte_panels(const GroupedJob& job, const StreamedPanels& panels,
                          const Scratch& scratch) {
  switch (job.type) {
    case DType::q4_0:
      return multiply_byte_blocks<DType::q4_0, kParts, kRows, kPanels>(job, panels, scratch);
    case DType::q4_1:
      return multiply_byte_blocks<DType::q4_1, kParts, kRows, kPanels>(job, panels, scratch);
    case DType::q5_0:
      return multiply_byte_blocks<DType::q5_0, kParts, kRows, kPanels>(job, panels, scratch);
    case DType::q5_1:
      return multiply_byte_blocks<DType::q5_1, kParts, kRows, kPanels>(job, panels, scratch);
    case DType::q2_k:
      return multiply_byte_blocks<DType::q2_k, kParts, kRows, kPanels>(job, panels, scratch);
    case DType::q3_k:
      return multiply_byte_blocks<DType::q3_k, kParts, kRows, kPanels>(job, panels, scratch);
    case DType::q4_k:
      return multiply_byte_blocks<DType::q4_k, kParts, kRows, kPanels>(job, panels, scratch);
    case DType::q5_k:
      return multiply_byte_blocks<DType::q5_k, kParts, kRows, kPanels>(job, panels, scratch);
    case DType::q6_k:
      return multiply_byte_blocks<DType::q6_k, kParts, kRows, kPanels>(job, panels, scratch);
    case DType::q8_0:
      return multiply_byte_blocks<DType::q8_0, kParts, kRows, kPanels>(job, panels, scratch);
    case DType::iq4_nl:
      return multiply_byte_blocks<DType::iq4_nl, kParts, kRows, kPanels>(job, panels, scratch);
    case DType::iq4_xs:
      return multiply_byte_blocks<DType::iq4_xs, kParts, kRows, kPanels>(job, panels, scratch);
    case DType::e2m1_e8m0:
      return multiply_byte_blocks<DType::e2m1_e8m0, kParts, kRows, kPanels>(job, panels, scratch);
    case DType::e2m1_e4m3:
      return multiply_byte_blocks<DType::e2m1_e4m3, kParts, kRows, kPanels>(job, panels, scratch);
    default:
      if (job.bits == 8)
        return multiply_byte_runs<8, false, kParts, kRows, kPanels>(job, panels, scratch);
      if (job.table == CodeTable::e2m1)
        return multiply_byte_runs<4, true, kParts, kRows, kPanels>(job, panels, scratch);
      multiply_byte_runs<4, false, kParts, kRows, kPanels>(job, panels, scratch);
  }
}

template <int kParts, int kRows>
void multiply_byte_rows(const GroupedJob& job, int64_t begin, int64_t end, const Scratch& scratch) {
  if constexpr (kRows > 0) {
    if (job.rows != kRows) return multiply_byte_rows<kParts, kRows - 1>(job, begin, end, scratch);
    constexpr int kPanels = static_cast<int>(byte_streams(kRows));
    for_streamed_panels(job, streams_of(job, kPanels), begin, end, [&](StreamedPanels panels) {
      if (panels.count == kPanels)
        return multiply_byte_panels<kParts, kRows, kPanels>(job, panels, scratch);
      for (int64_t p = 0; p < panels.count; ++p)
        multiply_byte_panels<kParts, kRows, 1>(job, {panels.panel(p), 1, 1}, scratch);
    });
  }
}

// Places [begin, end) of streams.
inline void multiply_bytes(const GroupedJob& job, int64_t begin, int64_t end,
                           const Scratch& scratch) {
  if (job.inputs == GroupedInputs::one_byte)
    return multiply_byte_rows<1, kByteRows>(job, begin, end, scratch);
  multiply_byte_rows<3, kByteRows>(job, begin, end, scratch);
}

#else

inline void multiply_bytes(const GroupedJob&, int64_t, int64_t, const Scratch&) {}

#endif

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
