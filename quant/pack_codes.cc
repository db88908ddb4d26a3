#include "quant/pack_codes.h"

#include <algorithm>
#include <cstring>

#include "quant/groups.h"

namespace sluice {
namespace {

constexpr int64_t kWordBytes = sizeof(uint32_t), kWordSize = 32;  // bits

// Returns whether words have no part of a code, and keep their order.
bool has_whole_words(const PackCodesJob& job) {
  return job.order == nullptr && job.of_word == 0 && job.step == job.bits &&
         (job.bits == 2 || job.bits == 4 || job.bits == 8);
}

// Returns how many bits of word `w` have codes of columns, which are in their order.
int64_t bits_in_word(const PackCodesJob& job, int64_t w) {
  if (job.of_word > 0) {
    const int64_t left = std::max<int64_t>(job.cols - w * job.of_word, 0);
    return left >= job.of_word ? kWordSize : left * job.bits;
  }
  return std::clamp<int64_t>(job.cols * job.step - w * kWordSize, 0, kWordSize);
}

// Word `w` of an output, with 0 behind the code of the last column.
uint32_t word_of(const PackCodesJob& job, int64_t output, int64_t w) {
  const int64_t left = job.apart == kWordBytes ? job.bytes - w * kWordBytes : kWordBytes;
  uint32_t word = 0;
  if (left > 0)
    std::memcpy(&word, job.from[output] + w * job.apart,
                static_cast<size_t>(std::min(left, kWordBytes)));
  if (job.high_first) word = (word & 0x0f0f0f0f) << 4 | (word >> 4 & 0x0f0f0f0f);
  const int64_t bits = bits_in_word(job, w);
  if (bits < kWordSize) word &= (1u << bits) - 1;
  return (word ^ job.signs) >> job.shifts[output];
}

uint32_t code_of(const PackCodesJob& job, int64_t output, int64_t input) {
  const int64_t bit = job.of_word > 0
                          ? input / job.of_word * kWordSize + input % job.of_word * job.bits
                          : input * job.step;
  const int64_t at = bit % kWordSize;
  uint64_t both = word_of(job, output, bit / kWordSize);
  if (at + job.bits > kWordSize)
    both |= uint64_t{word_of(job, output, bit / kWordSize + 1)} << kWordSize;
  return static_cast<uint32_t>(both >> at) & ((1u << job.bits) - 1);
}

}  // namespace

void pack_codes(const PackCodesJob& job) {
  const int64_t runs = ceil_div(job.cols, kRunCols);
  for (int64_t o = 0; o < job.outputs; ++o) {
    uint32_t* to = job.to + o;
    const bool is_there = job.from[o] != nullptr, whole = is_there && has_whole_words(job);
    for (int64_t w = 0; w < runs * job.bits; ++w)
      to[w * job.to_apart] = whole ? paired_codes(word_of(job, o, w), job.bits) : 0;
    for (int64_t c = 0; is_there && !whole && c < runs * kRunCols; ++c) {
      const int64_t input = job.order != nullptr && c < job.cols ? job.order[c] : c;
      put_run_code(to + c / kRunCols * job.bits * job.to_apart, job.to_apart, job.bits,
                   static_cast<int>(c % kRunCols), code_of(job, o, input));
    }
  }
}

}  // namespace sluice
