#include "quant/not_finite.h"

#include <cstring>

namespace sluice {
namespace {

// Counts numbers that have all bits of `mask`.
template <class Bits>
int64_t count_with(Bits mask, const std::byte* from, int64_t count) {
  constexpr int64_t kSize = sizeof(Bits), kAtOnce = 128;  // a sum of a byte holds 255
  int64_t sum = 0;
  for (int64_t i = 0; i < count;) {
    const int64_t end = count - i < kAtOnce ? count : i + kAtOnce;
    Bits some = 0;
    for (; i < end; ++i) {
      Bits bits;
      std::memcpy(&bits, from + i * kSize, sizeof bits);
      some = static_cast<Bits>(some + ((bits & mask) == mask));
    }
    sum += some;
  }
  return sum;
}

}  // namespace

int64_t count_not_finite(DType type, const std::byte* from, int64_t count) {
  switch (type) {
    case DType::f32:
      return count_with<uint32_t>(0x7f800000, from, count);
    case DType::f16:
      return count_with<uint16_t>(0x7c00, from, count);
    case DType::bf16:
      return count_with<uint16_t>(0x7f80, from, count);
    case DType::f8_e8m0:
      return count_with<uint8_t>(0xff, from, count);
    case DType::f8_e4m3:
      return count_with<uint8_t>(0x7f, from, count);
    default:
      return 0;
  }
}

}  // namespace sluice
