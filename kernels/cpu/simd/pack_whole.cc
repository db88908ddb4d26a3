// Inputs as integers (kernels/grouped_sum.h), in the parts that the products take.
#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// The integers of a block, 256 H + L, and H = 256 T + M with M a signed byte.
struct WholeBlock {
  alignas(64) int32_t lower[kBlockCols];
  alignas(64) int32_t upper[kBlockCols];
  float factor;
};

constexpr uint32_t kLeast = 127 - 105;  // kLeastExponent, with the bias of float32

// The bits of the largest of 256 magnitudes.
uint32_t largest_bits(const float* x) {
  Vu tops{};
  for (int64_t c = 0; c < kBlockCols; c += kLanes) {
    const Vu magnitude = load_bits(x + c) & 0x7fffffff;
    tops =
        select(reinterpret_cast<Vu>(reinterpret_cast<Vi>(tops) < reinterpret_cast<Vi>(magnitude)),
               magnitude, tops);
  }
  uint32_t top = 0;
  for (int64_t i = 0; i < kLanes; ++i) top = tops[i] > top ? tops[i] : top;
  return top;
}

void set_not_finite(WholeBlock& out) {
  std::memset(out.lower, 0, sizeof out.lower);
  std::memset(out.upper, 0, sizeof out.upper);
  out.factor = __builtin_nanf("");
}

// Integers of 8 bits, which have no upper part.
void byte_block(const float* x, WholeBlock& out) {
  const uint32_t top = largest_bits(x);
  if (top >= kInfinityBits) return set_not_finite(out);
  const float largest = bits_to_float(top > kLeast << 23 ? top : kLeast << 23);
  const float multiplier = 127 / largest;
  out.factor = largest / 127;
  std::memset(out.upper, 0, sizeof out.upper);
  for (int64_t c = 0; c < kBlockCols; c += kLanes)
    store(out.lower + c, as_ints(load(x + c) * multiplier + kRounder) - kRounderBits);
}

// `count` columns, and zeros behind them.
void whole_block(const float* x, int64_t count, bool to_bytes, WholeBlock& out) {
  alignas(64) float rounded[kBlockCols];
  if (count < kBlockCols) {
    std::memset(rounded, 0, sizeof rounded);
    std::memcpy(rounded, x, static_cast<size_t>(count) * sizeof(float));
    x = rounded;
  }
  if (to_bytes) return byte_block(x, out);
  for (int64_t c = 0; c < kBlockCols; c += kLanes) store(rounded + c, round_to_bf16(load(x + c)));
  const uint32_t top = largest_bits(rounded), stored = top >> 23;
  const uint32_t exponent = stored > kLeast ? stored : kLeast;
  if (top >= kInfinityBits) return set_not_finite(out);
  out.factor = bits_to_float((exponent - 21) << 23);
  const float multiplier = bits_to_float((2 * 127 + 21 - exponent) << 23);
  for (int64_t c = 0; c < kBlockCols; c += kLanes) {
    const Vi whole = as_ints(load(rounded + c) * multiplier + kRounder) - kRounderBits;
    const Vi lower = (whole << 24) >> 24;
    store(out.lower + c, lower);
    store(out.upper + c, (whole - lower) >> 8);
  }
}

int32_t sum_of(const int32_t* values, int64_t count) {
  int32_t sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += values[i];
  return sum;
}

// Sums of segments from `first` on, a column of the row.
void sum_segments(const WholeJob& job, const WholeBlock& block, const int32_t* top,
                  const int32_t* middle, int64_t first, float* sums, int32_t* starts) {
  const int64_t last = first + kBlockCols < job.cols ? first + kBlockCols : job.cols;
  for (int64_t begin = first, end; begin < last; begin = end) {
    end = (begin / job.group_cols + 1) * job.group_cols;
    if (end > last) end = last;
    const int64_t at = begin - first, count = end - begin;
    const int32_t lower = sum_of(block.lower + at, count);
    const int32_t whole = 256 * sum_of(block.upper + at, count) + lower;
    *sums++ = static_cast<float>(whole);
    if (starts == nullptr) continue;
    starts[0] = -job.zero * lower;
    starts[1] = -job.zero * sum_of(middle + at, count);
    starts[2] = -job.zero * sum_of(top + at, count);
    starts[3] =
        static_cast<int32_t>(0u - static_cast<uint32_t>(job.zero) * static_cast<uint32_t>(whole));
    starts += 4;
  }
}

void narrow(const int32_t* from, int16_t* to) {
  for (int64_t c = 0; c < kBlockCols; ++c) to[c] = static_cast<int16_t>(from[c]);
}

using Bytes [[gnu::vector_size(16)]] = int8_t;
// Bytes of 256 columns in the order of codes.
void put_bytes(const int32_t* from, bool paired_nibbles, uint32_t* out) {
  alignas(64) int8_t bytes[kBlockCols];
  for (int64_t c = 0; c < kBlockCols; ++c) bytes[c] = static_cast<int8_t>(from[c]);
  for (int64_t c = 0; c < kBlockCols; c += 16) {
    Bytes v;
    std::memcpy(&v, bytes + c, sizeof v);
    v = paired_nibbles ? __builtin_shufflevector(v, v, 0, 4, 1, 5, 2, 6, 3, 7,  //
                                                 8, 12, 9, 13, 10, 14, 11, 15)
                       : __builtin_shufflevector(v, v, 0, 2, 1, 3, 4, 6, 5, 7,  //
                                                 8, 10, 9, 11, 12, 14, 13, 15);
    std::memcpy(out + c / 4, &v, sizeof v);
  }
}

}  // namespace

void pack_whole(const WholeJob& job) {
  WholeBlock block;
  alignas(64) int32_t top[kBlockCols] = {}, middle[kBlockCols] = {};
  const int64_t blocks = (job.cols + kBlockCols - 1) / kBlockCols;
  const int64_t words = whole_words(job.kind);  // of a row
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t first = b * kBlockCols, left = job.cols - first;
    whole_block(job.x + first, left < kBlockCols ? left : kBlockCols, job.rounded, block);
    job.factors[b * job.rows] = block.factor;
    uint32_t* out = job.out + b * job.rows * words;
    if (job.kind == GroupedInputs::one_byte) {
      put_bytes(block.lower, job.paired_nibbles, out);
    } else if (job.kind == GroupedInputs::whole_bytes) {
      for (int64_t c = 0; c < kBlockCols; c += kLanes) {
        const auto upper = reinterpret_cast<Vi>(load_bits(block.upper + c));
        const Vi lower = (upper << 24) >> 24;
        store(middle + c, lower);
        store(top + c, (upper - lower) >> 8);
      }
      put_bytes(block.lower, job.paired_nibbles, out);
      put_bytes(middle, job.paired_nibbles, out + kBlockCols / 4);
      put_bytes(top, job.paired_nibbles, out + kBlockCols / 2);
    } else {
      narrow(block.upper, reinterpret_cast<int16_t*>(out));
      narrow(block.lower, reinterpret_cast<int16_t*>(out + kBlockCols / 2));
    }
    const int64_t at = b * job.rows * job.segments;
    sum_segments(job, block, top, middle, first, job.sums + at,
                 job.starts != nullptr ? job.starts + at * 4 : nullptr);
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
