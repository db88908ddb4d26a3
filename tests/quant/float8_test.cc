#include "quant/float8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/random.h"

namespace sluice {
namespace {

using test::Random;

// Nearest of `values` (ascending, by code) to a magnitude, ties to the even code, saturating: the
// definition, by search.
uint32_t nearest_code(const std::vector<double>& values, double x) {
  x = std::min(x, values.back());
  uint32_t best = 0;
  for (uint32_t code = 1; code < values.size(); ++code) {
    double now = std::abs(values[code] - x), before = std::abs(values[best] - x);
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return best;
}

// The finite magnitudes of a format from its definition: (1 + m / 2^M) 2^(e - bias).
std::vector<double> finite_values(int mantissa_bits, int bias, int count) {
  std::vector<double> values;
  for (int code = 0; code < count; ++code) {
    int exponent = code >> mantissa_bits;
    double fraction = std::ldexp(code & ((1 << mantissa_bits) - 1), -mantissa_bits);
    values.push_back(exponent == 0 ? std::ldexp(fraction, 1 - bias)
                                   : std::ldexp(1 + fraction, exponent - bias));
  }
  return values;
}

TEST(Float8, EveryE4M3CodeHasItsValue) {
  auto values = finite_values(3, 7, 0x7f);
  for (int code = 0; code < 0x7f; ++code) {
    EXPECT_EQ(e4m3_to_float(static_cast<uint8_t>(code)), values[static_cast<size_t>(code)]);
    EXPECT_EQ(e4m3_to_float(static_cast<uint8_t>(code | 0x80)), -values[static_cast<size_t>(code)]);
  }
  EXPECT_EQ(values.back(), kE4M3Max);
  EXPECT_TRUE(std::isnan(e4m3_to_float(0x7f)));
  EXPECT_TRUE(std::isnan(e4m3_to_float(0xff)));
}

TEST(Float8, EveryE5M2CodeHasItsValue) {
  auto values = finite_values(2, 15, 0x7c);
  for (int code = 0; code < 0x7c; ++code) {
    EXPECT_EQ(e5m2_to_float(static_cast<uint8_t>(code)), values[static_cast<size_t>(code)]);
  }
  EXPECT_EQ(values.back(), kE5M2Max);
  EXPECT_TRUE(std::isinf(e5m2_to_float(0xfc)));
  EXPECT_TRUE(std::isnan(e5m2_to_float(0x7d)));
}

// Every bf16 number covers all ties and all subnormals of the 8-bit formats.
TEST(Float8, EveryBf16NumberRoundsToTheNearestCode) {
  auto e4m3 = finite_values(3, 7, 0x7f);
  auto e5m2 = finite_values(2, 15, 0x7c);
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    float x = bf16_to_float(static_cast<uint16_t>(bits));
    ASSERT_EQ(float_to_e4m3(x), nearest_code(e4m3, x)) << x;
    ASSERT_EQ(float_to_e4m3(-x), nearest_code(e4m3, x) | 0x80) << x;
    ASSERT_EQ(float_to_e5m2(x), nearest_code(e5m2, x)) << x;
    ASSERT_EQ(float_to_e5m2(-x), nearest_code(e5m2, x) | 0x80) << x;
  }
}

TEST(Float8, InfinitySaturatesAndNanStaysNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(float_to_e4m3(infinity), 0x7e);
  EXPECT_EQ(float_to_e4m3(-infinity), 0xfe);
  EXPECT_EQ(float_to_e5m2(infinity), 0x7b);
  EXPECT_EQ(float_to_e4m3(std::nanf("")) & 0x7f, 0x7f);
  EXPECT_TRUE(std::isnan(e5m2_to_float(float_to_e5m2(-std::nanf("")))));
}

TEST(Float16, EveryHalfSurvivesTheRoundTrip) {
  auto values = finite_values(10, 15, 0x7c00);
  for (uint32_t code = 0; code < 0x7c00; ++code) {
    float x = f16_to_float(static_cast<uint16_t>(code));
    ASSERT_EQ(x, values[code]);
    ASSERT_EQ(float_to_f16(x), code);
    ASSERT_EQ(float_to_f16(-x), code | 0x8000);
  }
  EXPECT_TRUE(std::isinf(f16_to_float(0x7c00)));
  EXPECT_TRUE(std::isnan(f16_to_float(0x7e01)));
  EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(std::nanf("")))));
}

TEST(Float16, HalvesRoundToNearestEvenAndOverflowToInfinity) {
  for (uint32_t code = 0; code < 0x7bff; ++code) {
    float low = f16_to_float(static_cast<uint16_t>(code));
    float high = f16_to_float(static_cast<uint16_t>(code + 1));
    float middle = low + (high - low) / 2;  // exact
    uint32_t even = code % 2 == 0 ? code : code + 1;
    ASSERT_EQ(float_to_f16(middle), even);
    ASSERT_EQ(float_to_f16(std::nextafter(middle, 0.0f)), code);
    ASSERT_EQ(float_to_f16(std::nextafter(middle, 1e9f)), code + 1);
  }
  EXPECT_EQ(float_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_f16(-1e30f), 0xfc00);
}

TEST(Float16, Bf16RoundsToNearestEven) {
  Random random("Bf16RoundsToNearestEven");
  for (int i = 0; i < 20000; ++i) {
    auto code = static_cast<uint16_t>(random.between(0, 0x7f7e));
    float low = bf16_to_float(code), high = bf16_to_float(static_cast<uint16_t>(code + 1));
    auto middle = std::bit_cast<float>(static_cast<uint32_t>(code) << 16 | 0x8000);
    EXPECT_EQ(float_to_bf16(low), code);
    EXPECT_EQ(float_to_bf16(middle), code % 2 == 0 ? code : code + 1);
    EXPECT_EQ(float_to_bf16(std::nextafter(middle, low)), code);
    EXPECT_EQ(float_to_bf16(-std::nextafter(middle, high)), (code + 1) | 0x8000);
  }
  EXPECT_TRUE(std::isinf(bf16_to_float(float_to_bf16(std::numeric_limits<float>::max()))));
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7f800001)))));
}

}  // namespace
}  // namespace sluice
