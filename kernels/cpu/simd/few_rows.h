// Few rows times codes that are decoded in registers, to unsigned bytes, and multiplied by the
// bytes of inputs, three of each or one (kernels/grouped_sum.h). What is added to codes to make
// them unsigned is taken off at the start of the sums, exactly. kernels/cpu/grouped.cc lists the
// formats. AVX2 sums products of one row as 16-bit numbers first, which fit where bytes of codes
// are small (Ops::most_byte).
#pragma once

#include "kernels/cpu/simd/group_scales.h"
#include "kernels/cpu/simd/streams.h"
#include "quant/blocks.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

#if defined(__AVX2__)

#if defined(__AVX512VNNI__)

constexpr int kMostRowsOfBytes = kByteRows;

// A sum of products of bytes; kMost: the largest byte of codes, or more.
template <int kMost>
struct ByteSum {
  static constexpr int kSteps = 64;  // that are added before widen()

  void start(int32_t at) { of = Vu{} + static_cast<uint32_t>(at); }
  void add(Vu codes, uint32_t x) {
    of = reinterpret_cast<Vu>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(of),
                                                  reinterpret_cast<__m512i>(codes),
                                                  reinterpret_cast<__m512i>(Vu{} + x)));
  }
  void widen() {}
  Vu of;
};

#else

constexpr int kMostRowsOfBytes = 1;  // sums of more leave the registers

template <int kMost>
struct ByteSum {
  static constexpr int kSteps = kMost > 128 ? 1 : 128 / kMost;

  void start(int32_t at) {
    of = Vu{} + static_cast<uint32_t>(at);
    narrow = Halves{};
  }
  void add(Vu codes, uint32_t x) {
    narrow += reinterpret_cast<Halves>(_mm256_maddubs_epi16(reinterpret_cast<__m256i>(codes),
                                                            reinterpret_cast<__m256i>(Vu{} + x)));
  }
  void widen() {
    of += reinterpret_cast<Vu>(
        _mm256_madd_epi16(reinterpret_cast<__m256i>(narrow), _mm256_set1_epi16(1)));
    narrow = Halves{};
  }
  Vu of;
  Halves narrow;
};

#endif

// Sums of each byte of inputs, for each row.
template <int kRows, int kParts, int kMost>
struct ByteSums {
  static constexpr int kSteps = ByteSum<kMost>::kSteps;
  ByteSum<kMost> of[kRows][kParts];

  // `starts` of a segment, from row to row `apart`; null: zeros.
  void start(const int32_t* starts, int64_t apart) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
      for (int part = 0; part < kParts; ++part)
        of[r][part].start(starts == nullptr ? 0 : starts[r * apart + part]);
  }
  // Adds four columns; x: their word of the first row.
  void add(Vu codes, const uint32_t* x) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
      for (int part = 0; part < kParts; ++part) of[r][part].add(codes, x[(r * kParts + part) * 64]);
  }
  // After each kSteps columns, and the last.
  void widen() {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 3
      for (int part = 0; part < kParts; ++part) of[r][part].widen();
  }
  Vf value(int row) const {
    const ByteSum<kMost>* parts = of[row];
    if constexpr (kParts == 1) {
      return __builtin_convertvector(reinterpret_cast<Vi>(parts[0].of), Vf);
    } else {
      const Vu upper = (parts[2].of << 8) + parts[1].of;
      return whole_value(reinterpret_cast<Vi>(upper), reinterpret_cast<Vi>(parts[0].of));
    }
  }
};

constexpr int kByteVectors = static_cast<int>(16 / kLanes);  // of a panel's outputs

inline Vu low_nibbles(Vu word) { return word & 0x0f0f0f0f; }
inline Vu high_nibbles(Vu word) { return word >> 4 & 0x0f0f0f0f; }
// Shifts right, or left where `bits` is negative.
inline Vu shifted(Vu word, int bits) { return bits < 0 ? word << -bits : word >> bits; }

// Bytes that nibbles stand for: `values`, more by `zero`.
struct ByteTable {
  ByteTable(const int16_t* values, int zero) {
    uint8_t bytes[kCell];
    for (int i = 0; i < kCell; ++i) bytes[i] = static_cast<uint8_t>(values[i % 16] + zero);
    at = load_bits(bytes);
  }
  Vu of(Vu nibbles) const {
#if defined(__AVX512F__)
    return reinterpret_cast<Vu>(
        _mm512_shuffle_epi8(reinterpret_cast<__m512i>(at), reinterpret_cast<__m512i>(nibbles)));
#else
    return reinterpret_cast<Vu>(
        _mm256_shuffle_epi8(reinterpret_cast<__m256i>(at), reinterpret_cast<__m256i>(nibbles)));
#endif
  }
  Vu at;
};

// Blocks in pieces of words, each of one line of codes or two. Groups of a piece: with kTwoGroups
// each line has its own.
template <DType kType>
struct ByteBlock;

// Words of nibbles from kFirst on, in pieces of kWords: low nibbles, then high ones.
template <int kFirst, int kWordsOfPiece, int kPiecesOfBlock, bool kGroupsOfLines>
struct NibblePieces {
  static constexpr int kPieces = kPiecesOfBlock, kWords = kWordsOfPiece, kLines = 2;
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
    const Vu index = word >> first;  // of which four bits count
#if defined(__AVX512F__)
    return as_bits(_mm512_permutexvar_ps(reinterpret_cast<__m512i>(index), of_four));
#else
    const Vf of_three = _mm256_permutevar8x32_ps(of_four, reinterpret_cast<__m256i>(index));
    return as_bits(of_three) | (index & 8) << 25;
#endif
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

// Sums of some rows and of vectors of outputs: kByteVectors of each of some panels.
template <int kRows, int kPanels>
struct PanelSums {
  static constexpr int kVectors = kPanels * kByteVectors;
  Vf of[kVectors][kRows];

  // Adds those of a block of integers, which have these factors.
  void add(const PanelSums& block, const float* factors) {
    for (int v = 0; v < kVectors; ++v)
      for (int r = 0; r < kRows; ++r) of[v][r] += block.of[v][r] * factors[r];
  }
  void finish(const GroupedJob& job, const StreamedPanels& panels) const {
    float sums[kRows * 16];
    for (int p = 0; p < kPanels; ++p) {
      for (int v = 0; v < kByteVectors; ++v)
        for (int r = 0; r < kRows; ++r)
          store(sums + r * 16 + v * kLanes, of[p * kByteVectors + v][r]);
      finish_panel(job, panels.panel(p), sums);
    }
  }
};
constexpr int panel_of(int vector) { return vector / kByteVectors; }
constexpr int64_t lane_of(int vector) { return vector % kByteVectors * kLanes; }

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
template <DType kType, int kParts, int kRows, int kPanels>
inline void add_byte_block(const GroupedJob& job, const ByteBlock<kType>& kind,
                           const std::byte* block, int64_t apart,
                           const ByteInputs<kRows, kParts>& in, int64_t first,
                           const Scratch& scratch, PanelSums<kRows, kPanels>& sums) {
  using Kind = ByteBlock<kType>;
  constexpr BlockLayout kLayout = Block<kType>::kLayout;
  using Sums = ByteSums<kRows, kParts, kLayout.zero + kLayout.most_code>;
  constexpr int kBlockLines = (kLayout.bytes * 16 + 63) / 64, kVectors = kPanels * kByteVectors;
  constexpr int kSums = Kind::kTwoGroups ? 2 : 1, kSteps = Kind::kPieces * Kind::kWords;
  // Words between two times that sums are widened.
  constexpr int kNarrow = Sums::kSteps >= 2 ? Sums::kSteps * kSums / Kind::kLines : 1;
  const uint32_t* x = in.x + first * (job.group_cols / 4);
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    const int64_t at = panel_of(v) * kMostGroups * 16;
    const DecodedGroups to{nullptr, scratch.scales + at, scratch.mins + at};
    Kind::scales({block + panel_of(v) * apart, to, lane_of(v)});
  }
#pragma GCC unroll 16
  for (int piece = 0; piece < Kind::kPieces; ++piece) {
    Sums of[kVectors][kSums];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
#pragma GCC unroll 2
      for (int i = 0; i < kSums; ++i)
        of[v][i].start(in.start(first + Kind::group(piece, i)), in.segments * 4);
#pragma GCC unroll 8
    for (int w = 0; w < Kind::kWords; ++w) {
      const int step = piece * Kind::kWords + w;
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        const std::byte* from = block + panel_of(v) * apart;
#pragma GCC unroll 4
        for (int l = step * kBlockLines / kSteps; l < (step + 1) * kBlockLines / kSteps; ++l)
          if (lane_of(v) == 0) fetch_ahead(from + l * kCell);
#pragma GCC unroll 2
        for (int line = 0; line < Kind::kLines; ++line)
          of[v][line % kSums].add(kind.codes(from + lane_of(v) * 4, piece, w, line),
                                  x + Kind::quad(piece, w, line));
        if ((w + 1) % kNarrow == 0 || w + 1 == Kind::kWords)
#pragma GCC unroll 2
          for (int i = 0; i < kSums; ++i) of[v][i].widen();
      }
    }
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
#pragma GCC unroll 2
      for (int i = 0; i < kSums; ++i) {
        const int g = Kind::group(piece, i);
        const int64_t at = (panel_of(v) * kMostGroups + g) * 16 + lane_of(v);
        const Vf scale = load(scratch.scales + at);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r)
          sums.of[v][r] += in.scaled(of[v][i].value(r), r, first + g, scale,
                                     job.mins ? scratch.mins + at : nullptr);
      }
  }
}

template <DType kType, int kParts, int kRows, int kPanels>
void multiply_byte_blocks(const GroupedJob& job, const StreamedPanels& panels,
                          const Scratch& scratch) {
  const ByteBlock<kType> kind(job);
  const int64_t blocks = job.cols / job.block_cols, panel_bytes = blocks * job.block_bytes;
  const int64_t in_block = kBlockCols / job.block_cols, apart = panels.apart * panel_bytes;
  const std::byte* block = job.codes + panels.first * panel_bytes;
  PanelSums<kRows, kPanels> totals{};
  for (int64_t b = 0; b < whole_blocks(job); ++b) {
    const ByteInputs<kRows, kParts> in(job, b);
    PanelSums<kRows, kPanels> sums{};
    const int64_t count = smaller(in_block, blocks - b * in_block);
    for (int64_t i = 0; i < count; ++i, block += job.block_bytes)
      add_byte_block<kType>(job, kind, block, apart, in, i * (job.block_cols / job.group_cols),
                            scratch, sums);
    totals.add(sums, in.factors);
  }
  totals.finish(job, panels);
}

// Words of a segment of grouped codes: of four bits, looked up or not, or of eight.
template <int kBits, bool kTable, class Sums, int kVectors>
inline void add_byte_words(const ByteTable& table, const std::byte* from, int64_t apart,
                           int64_t words, const uint32_t* x, Sums (&of)[kVectors]) {
  constexpr int64_t kNarrow = Sums::kSteps * kBits / 8;
  for (int64_t first = 0; first < words; first += kNarrow) {
    const int64_t end = smaller(first + kNarrow, words);
#pragma GCC unroll 2
    for (int64_t w = first; w < end; ++w, from += kCell, x += 8 / kBits) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const std::byte* at = from + panel_of(v) * apart;
        if (lane_of(v) == 0) fetch_ahead(at);
        const Vu word = load_bits(at + lane_of(v) * 4);
        if (kBits == 8) {
          of[v].add(word, x);
          continue;
        }
        const Vu low = low_nibbles(word), high = high_nibbles(word);
        of[v].add(kTable ? table.of(low) : low, x);
        of[v].add(kTable ? table.of(high) : high, x + 1);
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) of[v].widen();
  }
}

template <int kBits, bool kTable, int kParts, int kRows, int kPanels>
void multiply_byte_runs(const GroupedJob& job, const StreamedPanels& panels,
                        const Scratch& scratch) {
  constexpr int16_t kNone[16] = {};
  constexpr int kMost = kTable ? 24 : (1 << kBits) - 1, kVectors = kPanels * kByteVectors;
  const ByteTable table(kTable ? job.code_values : kNone, job.zero);
  const int64_t panel_bytes = job.cols * kBits / 32 * kCell, apart = panels.apart * panel_bytes;
  const std::byte* from = job.codes + panels.first * panel_bytes;
  PanelSums<kRows, kPanels> totals{};
  for (int64_t b = 0; b < whole_blocks(job); ++b) {
    const ByteInputs<kRows, kParts> in(job, b);
    const uint32_t* x = in.x;
    PanelSums<kRows, kPanels> sums{};
    const int64_t end = block_end(job, b);
    int64_t s = 0;
    for (int64_t begin = b * kBlockCols; begin < end; ++s) {
      const Segment segment = segment_from(job, begin, end);
      ByteSums<kRows, kParts, kMost> of[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) of[v].start(in.start(s), in.segments * 4);
      const int64_t words = (segment.end - begin) * kBits / 32;
      add_byte_words<kBits, kTable>(table, from, apart, words, x, of);
      from += words * kCell;
      x += words * (8 / kBits);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const int64_t panel = panels.panel(panel_of(v));
        const GroupScale g = group_scale(job, panel, segment.group, lane_of(v));
        if (job.mins) store(scratch.mins, g.min);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r)
          sums.of[v][r] +=
              in.scaled(of[v].value(r), r, s, g.scale, job.mins ? scratch.mins : nullptr);
      }
      begin = segment.end;
    }
    totals.add(sums, in.factors);
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
    constexpr int kPanels = kByteVectors == 1 ? static_cast<int>(byte_streams(kRows)) : 1;
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
    return multiply_byte_rows<1, kMostRowsOfBytes>(job, begin, end, scratch);
  multiply_byte_rows<3, kMostRowsOfBytes>(job, begin, end, scratch);
}

#else

inline void multiply_bytes(const GroupedJob&, int64_t, int64_t, const Scratch&) {}

#endif

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
