// The order of columns of a panel (quant/order_codes.h). Lanes are outputs.
#include "quant/order_codes.h"

#include "kernels/cpu/simd/code_columns.h"
#include "kernels/cpu/simd/code_runs.h"
#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int64_t kLine = 64;                // bytes: a word of all outputs
constexpr int64_t kMostLines = 16384;        // of a panel that is copied
constexpr int64_t kColumnBytes = kLine / 8;  // of a column of four bits
constexpr int64_t kRunsAtOnce = 16;          // whose columns lie in the nearest cache

// Codes of four bits. A copy has them column by column, so that each changes its place at once.
void order_columns(const OrderCodesJob& job, int64_t runs, std::byte* copy) {
  constexpr uint32_t kPlaces[] = {0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28};
  const CodePlaces places(kPlaces);
  for (int64_t i = 0; i < runs * 4; ++i)
    line_to_columns(job.words + i * kPanelRows, copy + i * kLine);
  alignas(kLine) std::byte columns[kRunsAtOnce * kRunCols * kColumnBytes];
  for (int64_t run = 0; run < runs; run += kRunsAtOnce) {
    const int64_t count = runs - run < kRunsAtOnce ? runs - run : kRunsAtOnce;
    const int32_t* order = job.order + run * kRunCols;
    for (int64_t c = 0; c < count * kRunCols; ++c)
      std::memcpy(columns + c * kColumnBytes, copy + order[c] * kColumnBytes, kColumnBytes);
    uint32_t* to = job.words + run * 4 * kPanelRows;
    for (int64_t line = 0; line < count * 4; ++line)
      columns_to_line(columns + line * kLine, places, to + line * kPanelRows);
  }
}

// The codes of a column, in a copy of the panel's runs, of kLanes outputs from the first one's on.
template <int kBits>
inline Vu column_codes(const std::byte* first, int64_t column) {
  constexpr int kFirst = kLow<kBits>, kRest = kBits - kFirst;
  const std::byte* run = first + column / kRunCols * kBits * kLine;
  const auto c = static_cast<int>(column % kRunCols);
  const auto field = [&](int each) {
    const int of_word = 32 / each;
    const std::byte* word = run + c / of_word * kLine;
    return load_bits(word) >> static_cast<uint32_t>(place_in_word(each, c % of_word));
  };
  Vu codes = field(kFirst) & ((1u << kFirst) - 1);
  if constexpr (kRest > 0) {
    run += kFirst * kLine;
    codes |= (field(kRest) & ((1u << kRest) - 1)) << kFirst;
  }
  return codes;
}

template <int kBits>
void order_runs(const OrderCodesJob& job, int64_t runs, std::byte* copy) {
  std::memcpy(copy, job.words, static_cast<size_t>(runs * kBits * kLine));
  for (int64_t first = 0; first < kPanelRows; first += kLanes) {
    const std::byte* from = copy + first * static_cast<int64_t>(sizeof(uint32_t));
    for (int64_t run = 0; run < runs; ++run) {
      Vu codes[kRunCols];
#pragma GCC unroll 1
      for (int c = 0; c < kRunCols; ++c)
        codes[c] = column_codes<kBits>(from, job.order[run * kRunCols + c]);
      store_codes<kBits>(codes, job.words + run * kBits * kPanelRows + first);
    }
  }
}

template <int kBits>
[[gnu::noinline]] void order(const OrderCodesJob& job, int64_t runs) {
  alignas(kLine) std::byte copy[kMostLines * kLine];
  if constexpr (kBits == 4) {
    order_columns(job, runs, copy);
  } else {
    order_runs<kBits>(job, runs, copy);
  }
}

}  // namespace

void order_codes(const OrderCodesJob& job) {
  const int64_t runs = job.cols / kRunCols;
  if (job.outputs != kPanelRows || runs * job.bits > kMostLines) return sluice::order_codes(job);
  switch (job.bits) {
    case 1:
      return order<1>(job, runs);
    case 2:
      return order<2>(job, runs);
    case 3:
      return order<3>(job, runs);
    case 4:
      return order<4>(job, runs);
    case 5:
      return order<5>(job, runs);
    case 6:
      return order<6>(job, runs);
    default:
      return order<8>(job, runs);
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
