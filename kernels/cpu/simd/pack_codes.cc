// Codes of files into runs of a panel (quant/pack_codes.h). Lanes are outputs.
#include "kernels/cpu/simd/code_columns.h"
#include "kernels/cpu/simd/code_runs.h"
#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int64_t kWordBytes = 4, kLine = 64;  // bytes; of a line: a word of all outputs
// Runs of rows that are transposed together: each row has as many lines as there are bits from a
// code to the next.
constexpr int64_t kRunsAtOnce = 16;

// paired_codes() of each word (quant/groups.h).
template <int kBits>
inline Vu pair_codes(Vu words) {
  Vu halves[2] = {words, words >> kBits};
#pragma GCC unroll 2
  for (Vu& half : halves) {
    if constexpr (kBits == 2) {
      half &= 0x33333333;
      half |= half >> 2;
    }
    if constexpr (kBits <= 4) {
      half &= 0x0f0f0f0f;
      half |= half >> 4;
    }
    half &= 0x00ff00ff;
    half = (half | half >> 8) & 0xffff;
  }
  return halves[0] | halves[1] << 16;
}

// Brings codes of a stream, of which each begins kStep bits behind the one before, into the order
// of a run.
template <int kBits, int kStep = kBits>
inline void arrange(const Run<kStep>& stream, Run<kBits>& run) {
  if constexpr (kStep == kBits && (kBits == 2 || kBits == 4 || kBits == 8)) {
#pragma GCC unroll 8
    for (int w = 0; w < kBits; ++w) run[w] = pair_codes<kBits>(stream[w]);
  } else {
    const auto code = [&](int c) {
      const int word = c * kStep / 32, at = c * kStep % 32;
      Vu codes = stream[word] >> at;
      if (at + kBits > 32) codes |= stream[word + 1] << (32 - at);
      return codes;
    };
    collect<kBits>(code, run);
  }
}

// Words of kLanes outputs of a job, from output `first` on.
struct Lanes {
  const std::byte* const* from;
  int64_t apart, bytes;
  bool together = true;  // words lie side by side
  bool high_first;
  Vu signs{}, shifts{};

  Lanes(const PackCodesJob& job, int64_t first)
      : from(job.from + first),
        apart(job.apart),
        bytes(job.apart == kWordBytes ? job.bytes : INT64_MAX),
        high_first(job.high_first) {
    for (int64_t i = 0; i < kLanes; ++i) {
      const bool is_there = from[i] != nullptr;
      together = together && is_there && apart != kWordBytes &&  // rows may end before a word does
                 from[i] == from[0] + i * kWordBytes;
      signs[i] = is_there ? job.signs : 0;
      shifts[i] = job.shifts[first + i];
    }
  }

  Vu beside(int64_t w) const { return load_bits(from[0] + w * apart); }
  [[gnu::noinline]] Vu anywhere(int64_t w) const {
    uint32_t words[kLanes] = {};
    const int64_t left = bytes - w * kWordBytes;
    for (int64_t i = 0; i < kLanes; ++i) {
      if (from[i] == nullptr || left <= 0) continue;
      std::memcpy(&words[i], from[i] + w * apart,
                  static_cast<size_t>(left < kWordBytes ? left : kWordBytes));
    }
    return load_bits(words);
  }
  Vu changed(Vu words) const {
    if (high_first) words = (words & 0x0f0f0f0f) << 4 | (words >> 4 & 0x0f0f0f0f);
    return words ^ signs;
  }
};

// A run whose columns are collected one by one; word(w): of each output, as its codes are in it;
// none: that of codes behind the last column.
template <int kBits, class Word>
void collect_run(const PackCodesJob& job, const Word& word, Vu none, int64_t run, uint32_t* to) {
  const int64_t col = run * kRunCols;
  const auto count = static_cast<int>(job.cols - col < kRunCols ? job.cols - col : kRunCols);
  Vu codes[kRunCols];
  const bool one_by_one = job.of_word == 1 && job.order == nullptr;
#pragma GCC unroll 1
  for (int c = 0; c < count; ++c) {
    if (one_by_one) {
      codes[c] = word(col + c);
      continue;
    }
    const int64_t input = job.order != nullptr ? job.order[col + c] : col + c;
    const int64_t bit =
        job.of_word > 0 ? input / job.of_word * 32 + input % job.of_word * kBits : input * job.step;
    const auto shift = static_cast<uint32_t>(bit % 32);
    const Vu at = Vu{} + shift;
    codes[c] = word(bit / 32) >> at;
    if (32 % kBits != 0 && shift + kBits > 32) codes[c] |= word(bit / 32 + 1) << (32 - at);
  }
#pragma GCC unroll 1
  for (int c = count; c < kRunCols; ++c) codes[c] = none;
  store_codes<kBits>(codes, to);
}

template <int kBits, class Stored>
void collect_runs(const PackCodesJob& job, const Lanes& lanes, int64_t runs, uint32_t* to,
                  const Stored& stored) {
  const auto word = [&](int64_t w) { return lanes.changed(stored(w)) >> lanes.shifts; };
  for (int64_t run = 0; run < runs; ++run)
    collect_run<kBits>(job, word, lanes.signs, run, to + run * kBits * kPanelRows);
}

template <int kBits>
void collect_runs(const PackCodesJob& job, int64_t runs) {
  for (int64_t first = 0; first < kPanelRows; first += kLanes) {
    const Lanes lanes(job, first);
    uint32_t* to = job.to + first;
    if (lanes.together) {
      collect_runs<kBits>(job, lanes, runs, to, [&](int64_t w) { return lanes.beside(w); });
    } else {
      collect_runs<kBits>(job, lanes, runs, to, [&](int64_t w) { return lanes.anywhere(w); });
    }
  }
}

// Returns whether all outputs are there, in words of eight that lie side by side, of which a column
// has two, with no gap before the next one's.
bool are_columns(const PackCodesJob& job) {
  if (job.of_word != 1 || job.bits != 4 || job.apart != 2 * kWordBytes) return false;
  for (int64_t i = 0; i < kPanelRows; ++i) {
    const std::byte* from = job.from[i];
    if (from == nullptr || from != job.from[0] + i / 8 * kWordBytes) return false;
  }
  return job.cols % kRunCols == 0;
}

void pack_lines(const std::byte* columns, int64_t runs, const CodePlaces& places, uint32_t* to) {
  for (int64_t line = 0; line < runs * 4; ++line)
    columns_to_line(columns + line * kLine, places, to + line * kPanelRows);
}

// Runs whose columns are in the order of words, which are not in rows.
template <int kBits>
void pack_columns(const PackCodesJob& job, int64_t runs) {
  for (int64_t first = 0; first < kPanelRows; first += kLanes) {
    const Lanes lanes(job, first);
    const std::byte* next = job.next[first];
    for (int64_t run = 0; run < runs; ++run) {
      Run<kBits> stream, words;
      for (int w = 0; w < kBits; ++w) {
        const int64_t at = run * kBits + w;
        stream[w] = lanes.changed(lanes.together ? lanes.beside(at) : lanes.anywhere(at));
        if (next != nullptr) __builtin_prefetch(next + at * job.apart, 0, 2);
      }
      arrange<kBits>(stream, words);
      store_run<kBits>(words, job.to + run * kBits * kPanelRows + first);
    }
  }
}

// The same of words in rows: 16 words of all rows at a time.
template <int kBits, int kStep>
void pack_rows(const PackCodesJob& job, int64_t runs) {
  constexpr int64_t kBytes = kLine * kStep;  // of a row
  alignas(kLine) std::byte some[kPanelRows][kBytes], cells[kPanelRows * kBytes];
  const Lanes lanes[] = {Lanes(job, 0), Lanes(job, kLanes % kPanelRows),
                         Lanes(job, 2 * kLanes % kPanelRows), Lanes(job, 3 * kLanes % kPanelRows)};
  const bool all = job.from[kPanelRows - 1] != nullptr,
             fetches = job.next[kPanelRows - 1] != nullptr;
  const int64_t codes_end = job.cols * kStep;
  // Bits of the last byte that are codes. With the upper half first there are two codes, or one.
  const auto last = static_cast<std::byte>(job.high_first ? 0xf0 : (1 << codes_end % 8) - 1);
  for (int64_t first = 0, at = 0; first < runs; first += kRunsAtOnce, at += kBytes) {
    const std::byte* rows[kPanelRows];
    const bool ends = at + kBytes >= job.bytes && codes_end % 8 != 0;  // within a byte
    const bool whole = all && at + kBytes <= job.bytes && !ends;
    for (int64_t r = 0; r < kPanelRows; ++r) {
      rows[r] = whole ? job.from[r] + at : some[r];
      if (whole) continue;
      const int64_t left = job.bytes - at < kBytes ? job.bytes - at : kBytes;
      const auto stored = static_cast<size_t>(job.from[r] != nullptr && left > 0 ? left : 0);
      std::memset(some[r] + stored, 0, static_cast<size_t>(kBytes) - stored);
      if (stored == 0) continue;
      std::memcpy(some[r], job.from[r] + at, stored);
      if (ends) some[r][stored - 1] &= last;
    }
    for (int64_t j = 0; j < kStep; ++j) {
      for (int64_t r = 0; fetches && r < kPanelRows; ++r)
        __builtin_prefetch(job.next[r] + at + j * kLine, 0, 2);
      transpose_words(rows, j * kLine, cells + j * kPanelRows * kLine);
    }
    const int64_t count = runs - first < kRunsAtOnce ? runs - first : kRunsAtOnce;
    for (int64_t i = 0; i < count * kPanelRows / kLanes; ++i) {
      const int64_t run = i * kLanes / kPanelRows, part = i % (kPanelRows / kLanes);
      Run<kStep> stream;
#pragma GCC unroll 8
      for (int w = 0; w < kStep; ++w) {
        const std::byte* cell = cells + (run * kStep + w) * kLine;
        stream[w] = lanes[part].changed(load_bits(cell + part * kLanes * kWordBytes));
        if (kStep != kBits) stream[w] = stream[w] >> lanes[part].shifts;
      }
      Run<kBits> words;
      arrange<kBits, kStep>(stream, words);
      store_run<kBits>(words, job.to + (first + run) * kBits * kPanelRows + part * kLanes);
    }
  }
}

template <int kBits>
void pack(const PackCodesJob& job) {
  const int64_t runs = (job.cols + kRunCols - 1) / kRunCols;
  if (are_columns(job)) return pack_lines(job.from[0], runs, CodePlaces(job.shifts), job.to);
  if (job.order != nullptr || job.of_word != 0) return collect_runs<kBits>(job, runs);
  if (job.apart != kWordBytes) return pack_columns<kBits>(job, runs);
  if constexpr (8 % kBits == 0) {
    if (job.step != kBits) return pack_rows<kBits, 8>(job, runs);
  }
  pack_rows<kBits, kBits>(job, runs);
}

}  // namespace

void pack_codes(const PackCodesJob& job) {
  if (job.outputs != kPanelRows || job.to_apart != kPanelRows) return sluice::pack_codes(job);
  switch (job.bits) {
    case 1:
      return pack<1>(job);
    case 2:
      return pack<2>(job);
    case 3:
      return pack<3>(job);
    case 4:
      return pack<4>(job);
    case 5:
      return pack<5>(job);
    case 6:
      return pack<6>(job);
    default:
      return pack<8>(job);
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
