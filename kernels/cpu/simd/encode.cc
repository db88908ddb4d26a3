// Row groups into packed cells or rows: quant/encode.cc's arithmetic on vectors. Columns are taken
// as two vectors, the even ones and the odd ones: so 16-bit elements need no unpacking, and codes
// no packing.
#include "kernels/cpu/simd/float8.h"
#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int64_t kLine = 64;  // bytes of one row that become 16 words of 16 cells
// Prefetch distance of each row: 16 rows at once are many streams for the hardware.
constexpr int64_t kPrefetchBytes = 512;

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t element_bytes(DType dtype) {
  const bool byte = dtype == DType::f8_e4m3 || dtype == DType::i8;
  return dtype == DType::f64 ? 8 : dtype == DType::f32 ? 4 : byte ? 1 : 2;
}

// kLanes consecutive elements, rounded to float32.
Vf load_f64(const std::byte* from) {
  using Vd [[gnu::vector_size(8 * kLanes)]] = double;
  Vd doubles;
  std::memcpy(&doubles, from, sizeof doubles);
  return __builtin_convertvector(doubles, Vf);
}

struct Pair {
  Vf even, odd;
};

// 2 kLanes consecutive elements.
template <DType kStored>
Pair load_pair(const std::byte* from) {
  if constexpr (kStored == DType::f32) {
    const Vf first = load(from), second = load(from + kLanes * 4);
    return {even_lanes(first, second), odd_lanes(first, second)};
  } else if constexpr (kStored == DType::f64) {
    const Vf first = load_f64(from), second = load_f64(from + kLanes * 8);
    return {even_lanes(first, second), odd_lanes(first, second)};
  } else if constexpr (kStored == DType::f16) {
    const Vu both = load_bits(from);
    return {f16_to_float(both & 0xffff), f16_to_float(both >> 16)};
  } else {
    const Vu both = load_bits(from);
    return {as_floats(both << 16), as_floats(both & 0xffff0000)};
  }
}

// Statistics of a row group, by lanes; float64 as in EncodeStats.
struct Sums {
  using Vd [[gnu::vector_size(4 * kLanes)]] = double;
  Vd error_squares{};
  Vd value_squares{};
  Vf max_error{};
  Vi not_finite{};
};

void add_squares(Vf v, Sums::Vd& sum) {
#if defined(__AVX512F__)
  const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(v));
  const __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
  sum = _mm512_fmadd_pd(high, high, _mm512_fmadd_pd(low, low, sum));
#elif defined(__AVX2__)
  const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(v));
  const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
  sum = _mm256_fmadd_pd(high, high, _mm256_fmadd_pd(low, low, sum));
#else
  for (int64_t i = 0; i < kLanes; ++i) sum[i % 2] += static_cast<double>(v[i]) * v[i];
#endif
}

// Magnitudes: of the source, and of what their codes mean. Elements that are not finite do not
// enter the sums.
void add_to_sums(Vf magnitude, Vf decoded, Sums& sums) {
  const Vu finite = below(as_bits(magnitude), kInfinityBits);
  const Vf error = as_floats(as_bits(magnitude - decoded) & 0x7fffffff & finite);
  add_squares(error, sums.error_squares);
  sums.max_error = max(error, sums.max_error);
  add_squares(as_floats(as_bits(magnitude) & finite), sums.value_squares);
  sums.not_finite += reinterpret_cast<Vi>(~finite) & 1;
}
void add_to_sums(Vf magnitude, Sums& sums) {
  const Vu finite = below(as_bits(magnitude), kInfinityBits);
  add_squares(as_floats(as_bits(magnitude) & finite), sums.value_squares);
  sums.not_finite += reinterpret_cast<Vi>(~finite) & 1;
}

Vf magnitude_of(Vf x) { return as_floats(as_bits(x) & 0x7fffffff); }

// The code of x, sign included, in the low bits of each lane.
template <DType kTo>
[[gnu::always_inline]] inline Vu encode_lanes(Vf x, Vf scale, Sums& sums) {
  const Vf magnitude = magnitude_of(x);
  const Vu sign = as_bits(x) & 0x80000000;
  const Vu is_number = below(as_bits(magnitude), kInfinityBits + 1);
  Vf value;
  if constexpr (kTo == DType::f8_e4m3) {
    const Vf clamped = min(splat(448.0f), magnitude / scale);
    const Vu code = minifloat_code<3, 7>(clamped, value);
    add_to_sums(magnitude, value * scale, sums);
    return select(is_number, code, Vu{} + 0x7f) | sign >> 24;
  } else if constexpr (kTo == DType::i8) {
    const auto code = reinterpret_cast<Vu>(i8_codes(x, scale, value) + 128);
    add_to_sums(magnitude, magnitude_of(value) * scale, sums);
    return select(is_number, code, Vu{} + 128);
  } else if constexpr (kTo == DType::f16) {
    const Vu fits = below(as_bits(magnitude), 0x477ff000);  // 65520 rounds to infinity
    Vu code = minifloat_code<10, 15>(magnitude, value);
    code = select(fits, code, select(is_number, Vu{} + 0x7c00, Vu{} + 0x7e00));
    add_to_sums(magnitude, as_floats(select(fits, as_bits(value), Vu{} + kInfinityBits)), sums);
    return code | sign >> 16;
  } else {
    const Vu rounded = round_to_bf16(x);
    add_to_sums(magnitude, magnitude_of(as_floats(rounded)), sums);
    return rounded >> 16;
  }
}

template <DType kStored, DType kTo>
[[gnu::always_inline]] inline Vu encode_pair(const std::byte* from, Vf scale, Sums& sums) {
  constexpr int kBits = static_cast<int>(8 * element_bytes(kTo));
  const Pair x = load_pair<kStored>(from);
  const Vu even = encode_lanes<kTo>(x.even, scale, sums);
  return even | encode_lanes<kTo>(x.odd, scale, sums) << kBits;
}

// Pairs of bytes in the low half of each lane, two lanes to a word.
Vu join_halves(Vu first, Vu second) {
  using Wide [[gnu::vector_size(4 * kLanes)]] = uint64_t;
  const auto a = reinterpret_cast<Wide>(first), b = reinterpret_cast<Wide>(second);
  return as_bits(even_lanes(reinterpret_cast<Vf>(a | a >> 16), reinterpret_cast<Vf>(b | b >> 16)));
}

// kLanes consecutive elements in order.
template <DType kStored>
Vf load_widened(const std::byte* from) {
  if constexpr (kStored == DType::f64) return load_f64(from);
  if constexpr (kStored == DType::f32) return load(from);
  const Vu codes = load_u16(from);
  return kStored == DType::bf16 ? as_floats(codes << 16) : f16_to_float(codes);
}

// One line: 64 bytes of codes of one row.
template <DType kStored, DType kTo>
[[gnu::always_inline]] inline void encode_line(const std::byte* from, Vf scale, std::byte* to,
                                               Sums& sums) {
  constexpr int64_t kPairBytes = 2 * kLanes * element_bytes(kStored);
  for (int64_t at = 0; at < kLine; at += kLanes * 4) {  // a vector of words
    if constexpr (element_bytes(kTo) == 1) {
      const Vu first = encode_pair<kStored, kTo>(from, scale, sums);
      const Vu second = encode_pair<kStored, kTo>(from + kPairBytes, scale, sums);
      store(to + at, join_halves(first, second));
      from += 2 * kPairBytes;
    } else if constexpr (kTo == DType::f32) {  // nothing to round any more
      const Vf x = load_widened<kStored>(from);
      add_to_sums(magnitude_of(x), sums);
      store(to + at, x);
      from += kPairBytes / 2;
    } else if constexpr (kTo == kStored) {
      const Pair x = load_pair<kStored>(from);
      add_to_sums(magnitude_of(x.even), sums);
      add_to_sums(magnitude_of(x.odd), sums);
      store(to + at, load_bits(from));
      from += kPairBytes;
    } else {
      store(to + at, encode_pair<kStored, kTo>(from, scale, sums));
      from += kPairBytes;
    }
  }
}

// The same of fewer elements than a line holds, zeros behind them.
template <DType kStored, DType kTo>
void encode_last_line(const std::byte* from, int64_t cols, Vf scale, std::byte* to, Sums& sums) {
  constexpr int64_t kSource = element_bytes(kStored);
  std::byte padded[kLine / element_bytes(kTo) * kSource] = {};
  std::memcpy(padded, from, static_cast<size_t>(cols * kSource));
  encode_line<kStored, kTo>(padded, scale, to, sums);
}

// Whole cells past the cache, as nobody reads them soon: a weight is larger than any cache.
void stream_cells(const std::byte* cells, int64_t bytes, std::byte* to) {
  for (int64_t at = 0; at < bytes; at += kLanes * 4) {
#if defined(__AVX512F__)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), _mm512_loadu_si512(cells + at));
#elif defined(__AVX2__)
    _mm256_stream_ps(reinterpret_cast<float*>(to + at), load(cells + at));
#else
    store(to + at, load(cells + at));
#endif
  }
}

template <DType kStored, DType kTo>
void encode_rows(const EncodeJob& job, Sums& out) {
  constexpr int64_t kSource = element_bytes(kStored), kCode = element_bytes(kTo);
  constexpr int64_t kCols = kLine / kCode;
  alignas(64) std::byte lines[16][kLine] = {};
  alignas(64) std::byte cells[16 * kLine];
  const std::byte* pointers[16];
  for (int64_t r = 0; r < 16; ++r) pointers[r] = lines[r];
  if constexpr (kTo == DType::i8) std::memset(lines, 128, sizeof lines);  // zeros
  Sums sums;
  for (int64_t c = 0; c < job.cols; c += kCols) {
    const int64_t cols = smaller(kCols, job.cols - c);
    for (int64_t r = 0; r < job.rows; ++r) {
      const std::byte* from = job.source + r * job.source_stride + c * kSource;
      const Vf scale = splat(job.scales[r]);
      for (int64_t line = 0; line < kCols * kSource; line += kLine) {
        __builtin_prefetch(from + line + kPrefetchBytes);
      }
      if (cols == kCols) {
        encode_line<kStored, kTo>(from, scale, lines[r], sums);
      } else {
        encode_last_line<kStored, kTo>(from, cols, scale, lines[r], sums);
      }
      if (!job.packed) {
        std::memcpy(job.to + r * job.to_stride + c * kCode, lines[r],
                    static_cast<size_t>(cols * kCode));
      }
    }
    if (!job.packed) continue;
    const int64_t bytes = (cols * kCode + 3) / 4 * kLine;  // of whole cells
    std::byte* to = job.to + c * kCode / 4 * kLine;
    transpose_words(pointers, 0, cells);
    if constexpr (kTo == DType::f8_e4m3) interleave_codes(cells, bytes);
    stream_cells(cells, bytes, to);
  }
  out = sums;
}

template <DType kStored>
Sums encode_from(const EncodeJob& job) {
  Sums sums;
  switch (job.dtype) {
    case DType::f32:
      encode_rows<kStored, DType::f32>(job, sums);
      break;
    case DType::f16:
      encode_rows<kStored, DType::f16>(job, sums);
      break;
    case DType::bf16:
      encode_rows<kStored, DType::bf16>(job, sums);
      break;
    case DType::i8:
      encode_rows<kStored, DType::i8>(job, sums);
      break;
    default:
      encode_rows<kStored, DType::f8_e4m3>(job, sums);
  }
  return sums;
}

// Largest of `count` integers with the sign bit off, among those below `limit` (infinity).
template <class Int>
uint32_t largest_below(const std::byte* from, int64_t count, Int limit) {
  constexpr Int kMagnitude = static_cast<Int>(~(Int{1} << (8 * sizeof(Int) - 1)));
  Int top = 0;
  for (int64_t i = 0; i < count; ++i) {
    Int bits;
    std::memcpy(&bits, from + i * static_cast<int64_t>(sizeof bits), sizeof bits);
    bits &= kMagnitude;
    bits = bits < limit ? bits : Int{0};
    top = bits > top ? bits : top;
  }
  return static_cast<uint32_t>(top);
}

// The same of doubles as float32.
uint32_t largest_of_doubles(const std::byte* from, int64_t count) {
  int32_t top = 0;
  for (int64_t i = 0; i < count; ++i) {
    double x;
    std::memcpy(&x, from + i * static_cast<int64_t>(sizeof x), sizeof x);
    int32_t bits = __builtin_bit_cast(int32_t, static_cast<float>(x)) & 0x7fffffff;
    bits = bits < 0x7f800000 ? bits : 0;
    top = bits > top ? bits : top;
  }
  return static_cast<uint32_t>(top);
}

}  // namespace

void encode(const EncodeJob& job, EncodeSums* out) {
  const Sums sums = job.stored == DType::f64   ? encode_from<DType::f64>(job)
                    : job.stored == DType::f32 ? encode_from<DType::f32>(job)
                    : job.stored == DType::f16 ? encode_from<DType::f16>(job)
                                               : encode_from<DType::bf16>(job);
#if defined(__AVX2__)
  _mm_sfence();  // streamed stores before whatever tells another thread that they are done
#endif
  for (int64_t i = 0; i < kLanes; ++i) out->not_finite += sums.not_finite[i];
  for (int64_t i = 0; i < kLanes / 2; ++i) {
    out->error_squares += sums.error_squares[i];
    out->value_squares += sums.value_squares[i];
  }
  const float max_error = max(sums.max_error);
  out->max_error = max_error > out->max_error ? max_error : out->max_error;
}

uint32_t largest(const std::byte* source, DType stored, int64_t count) {
  switch (stored) {
    case DType::f64:
      return largest_of_doubles(source, count);
    case DType::f32:
      return largest_below<int32_t>(source, count, 0x7f800000);
    case DType::f16:
      return largest_below<int16_t>(source, count, 0x7c00);
    default:
      return largest_below<int16_t>(source, count, 0x7f80);
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
