// Each group of columns first gets the scale, and the minimum, with the least sum of squared errors
// that a few tries find; these become small integers times the block's own, and the integers beside
// them are tried as well. Then each column gets the nearest code.
#include "quant/make_k_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "quant/float8.h"

namespace sluice {
namespace {

float rounded_f16(float value, uint8_t* to) {
  const uint16_t bits = float_to_f16(value);
  std::memcpy(to, &bits, sizeof bits);
  return f16_to_float(bits);
}

float inverse(float scale) { return scale != 0 ? 1 / scale : 0; }

// Four columns. Sums are over such, so that they are the same whatever the processor has.
constexpr int kLanes = 4;
using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

Lanes lanes_at(const float* x) {
  Lanes lanes;
  std::memcpy(&lanes, x, sizeof lanes);
  return lanes;
}

float sum_of(const Lanes& lanes) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += lanes[i];
  return sum;
}

// To nearest, ties to even; of magnitudes that are no codes the nearest code.
Lanes nearest_codes(const Lanes& x, float least, float most) {
  constexpr float kMagic = 0x1.8p23f;
  const Lanes lowest = Lanes{} + least, highest = Lanes{} + most, code = x + kMagic - kMagic;
  const Lanes from_lowest = code > lowest ? code : lowest;
  return from_lowest < highest ? from_lowest : highest;
}
float nearest_code(float x, float least, float most) {
  constexpr float kMagic = 0x1.8p23f;
  return std::clamp(x + kMagic - kMagic, least, most);
}

// value = scale * code - min
struct Affine {
  float scale = 0;
  float min = 0;
};

constexpr int kGroupCols = 32, kGroups = kSuperCols / kGroupCols;
using Group = std::span<const float, kGroupCols>;
constexpr float kMostSixBits = 63;

// Calls visit(columns, their codes).
template <class Visit>
void each_code(Group x, const Affine& by, float most, Visit&& visit) {
  const float scale_inverse = inverse(by.scale);
  for (size_t c = 0; c < kGroupCols; c += kLanes) {
    const Lanes values = lanes_at(&x[c]);
    visit(values, nearest_codes((values + by.min) * scale_inverse, 0, most));
  }
}

float squared_error(Group x, const Affine& by, float most) {
  Lanes sum{};
  each_code(x, by, most, [&](const Lanes& values, const Lanes& codes) {
    const Lanes error = codes * by.scale - by.min - values;
    sum += error * error;
  });
  return sum_of(sum);
}

// The least squares for the codes that `by` gives; a minimum is not below zero.
Affine fitted(Group x, const Affine& by, float most) {
  Lanes code_sum{}, square_sum{}, value_sum{}, product_sum{};
  each_code(x, by, most, [&](const Lanes& values, const Lanes& codes) {
    code_sum += codes;
    square_sum += codes * codes;
    value_sum += values;
    product_sum += values * codes;
  });
  const float codes = sum_of(code_sum), squares = sum_of(square_sum), values = sum_of(value_sum),
              products = sum_of(product_sum);
  const float determinant = kGroupCols * squares - codes * codes;
  if (determinant <= 0) return by;
  const Affine fit{(kGroupCols * products - values * codes) / determinant,
                   (codes * products - squares * values) / determinant};
  if (fit.min >= 0) return fit.scale > 0 ? fit : by;
  return {squares > 0 && products > 0 ? products / squares : by.scale, 0};
}

Affine best_affine(Group x, float most) {
  constexpr int kTries = 12;
  constexpr float kStep = 0.15f;
  const float low = std::min(std::ranges::min(x), 0.f), range = std::ranges::max(x) - low;
  if (range <= 0) return {0, -low};
  Affine best{range / most, -low};
  float least = squared_error(x, best, most);
  for (int t = -kTries / 2; t <= kTries; ++t) {
    const Affine start{range / (most + kStep * static_cast<float>(t)), -low};
    const Affine fit = fitted(x, start, most);
    const float error = squared_error(x, fit, most);
    if (error >= least) continue;
    least = error;
    best = fit;
  }
  return best;
}

struct SixBitGroups {
  std::array<uint8_t, kGroups> scales{};
  std::array<uint8_t, kGroups> mins{};
  std::array<Affine, kGroups> exact{};  // as they are decoded
};

// Tries the integers around the nearest ones.
void choose_six_bits(Group x, const Affine& wanted, float scale, float min, float most, int group,
                     SixBitGroups& to) {
  const auto nearest = [](float value, float unit) {
    return nearest_code(value * inverse(unit), 0, kMostSixBits);
  };
  const float scale_near = nearest(wanted.scale, scale), min_near = nearest(wanted.min, min);
  float least = INFINITY;
  const auto at = static_cast<size_t>(group);
  for (const float s : {scale_near, scale_near - 1, scale_near + 1}) {
    for (const float m : {min_near, min_near - 1, min_near + 1}) {
      if (s < 0 || m < 0 || s > kMostSixBits || m > kMostSixBits) continue;
      const Affine tried{scale * s, min * m};
      const float error = squared_error(x, tried, most);
      if (error >= least) continue;
      least = error;
      to.scales[at] = static_cast<uint8_t>(s);
      to.mins[at] = static_cast<uint8_t>(m);
      to.exact[at] = tried;
    }
  }
}

void put_six_bits(const SixBitGroups& groups, uint8_t* to) {
  const auto& [scales, mins, exact] = groups;
  for (size_t g = 0; g < 4; ++g) {
    to[g] = static_cast<uint8_t>(scales[g] | (scales[g + 4] >> 4) << 6);
    to[g + 4] = static_cast<uint8_t>(mins[g] | (mins[g + 4] >> 4) << 6);
    to[g + 8] = static_cast<uint8_t>((scales[g + 4] & 15) | (mins[g + 4] & 15) << 4);
  }
}

Group group_of(SuperColumns x, int group) {
  return x.subspan(static_cast<size_t>(group) * kGroupCols).first<kGroupCols>();
}

// The beginning of a block: scale, minimum, and those of groups. Returns codes.
std::array<uint8_t, kSuperCols> make_affine(SuperColumns x, float most, uint8_t* to) {
  std::array<Affine, kGroups> wanted{};
  Affine largest;
  for (int g = 0; g < kGroups; ++g) {
    const Affine& own = wanted[static_cast<size_t>(g)] = best_affine(group_of(x, g), most);
    largest = {std::max(largest.scale, own.scale), std::max(largest.min, own.min)};
  }
  const float scale = rounded_f16(largest.scale / kMostSixBits, to),
              min = rounded_f16(largest.min / kMostSixBits, to + 2);
  SixBitGroups groups;
  for (int g = 0; g < kGroups; ++g)
    choose_six_bits(group_of(x, g), wanted[static_cast<size_t>(g)], scale, min, most, g, groups);
  put_six_bits(groups, to + 4);
  std::array<uint8_t, kSuperCols> codes{};
  for (size_t c = 0; c < kSuperCols; ++c) {
    const Affine& by = groups.exact[c / kGroupCols];
    codes[c] = static_cast<uint8_t>(nearest_code((x[c] + by.min) * inverse(by.scale), 0, most));
  }
  return codes;
}

// Codes of 64 columns in 32 bytes: the lower four bits of two columns each.
void put_low_bits(const std::array<uint8_t, kSuperCols>& codes, uint8_t* to) {
  for (size_t c = 0; c < kSuperCols; ++c)
    to[c / 64 * 32 + c % 32] |= static_cast<uint8_t>((codes[c] & 15) << (c % 64 / 32 * 4));
}

constexpr int kSmallCols = 16, kSmallGroups = kSuperCols / kSmallCols;
using SmallGroup = std::span<const float, kSmallCols>;
constexpr float kLeastCode = -32, kMostCode = 31;

template <class Visit>
void each_code(SmallGroup x, float scale_inverse, Visit&& visit) {
  for (size_t c = 0; c < kSmallCols; c += kLanes) {
    const Lanes values = lanes_at(&x[c]);
    visit(values, nearest_codes(values * scale_inverse, kLeastCode, kMostCode));
  }
}

float squared_error(SmallGroup x, float scale) {
  Lanes sum{};
  each_code(x, inverse(scale), [&](const Lanes& values, const Lanes& codes) {
    const Lanes error = codes * scale - values;
    sum += error * error;
  });
  return sum_of(sum);
}

// The value of the largest magnitude is near the code of the largest magnitude.
float best_scale(SmallGroup x) {
  constexpr int kTries = 9;
  constexpr float kStep = 0.1f;
  const float most = *std::ranges::max_element(x, {}, [](float v) { return std::abs(v); });
  if (most == 0) return 0;
  float best = most / kLeastCode, least = squared_error(x, best);
  for (int t = -kTries; t <= kTries; ++t) {
    const float scale_inverse = (kLeastCode + kStep * static_cast<float>(t)) / most;
    Lanes square_sum{}, product_sum{};
    each_code(x, scale_inverse, [&](const Lanes& values, const Lanes& codes) {
      square_sum += codes * codes;
      product_sum += values * codes;
    });
    const float squares = sum_of(square_sum), products = sum_of(product_sum);
    if (squares == 0) continue;
    const float error = squared_error(x, products / squares);
    if (error >= least) continue;
    least = error;
    best = products / squares;
  }
  return best;
}

int8_t choose_scale(SmallGroup x, float wanted, float unit) {
  const float near = nearest_code(wanted * inverse(unit), INT8_MIN, INT8_MAX);
  float least = INFINITY;
  int8_t chosen = 0;
  for (const float tried : {near, near - 1, near + 1}) {
    if (tried < INT8_MIN || tried > INT8_MAX) continue;
    const float error = squared_error(x, unit * tried);
    if (error >= least) continue;
    least = error;
    chosen = static_cast<int8_t>(tried);
  }
  return chosen;
}

}  // namespace

void make_q4_k(SuperColumns x, uint8_t* to) {
  std::memset(to, 0, 144);
  put_low_bits(make_affine(x, 15, to), to + 16);
}

void make_q5_k(SuperColumns x, uint8_t* to) {
  std::memset(to, 0, 176);
  const std::array<uint8_t, kSuperCols> codes = make_affine(x, 31, to);
  for (size_t c = 0; c < kSuperCols; ++c)
    to[16 + c % 32] |= static_cast<uint8_t>((codes[c] >> 4) << (c / 32));
  put_low_bits(codes, to + 48);
}

void make_q6_k(SuperColumns x, uint8_t* to) {
  std::memset(to, 0, 210);
  const auto group = [&](size_t g) { return x.subspan(g * kSmallCols).first<kSmallCols>(); };
  std::array<float, kSmallGroups> wanted{};
  for (size_t g = 0; g < kSmallGroups; ++g) wanted[g] = best_scale(group(g));
  const float most = *std::ranges::max_element(wanted, {}, [](float s) { return std::abs(s); });
  const float unit = rounded_f16(most / INT8_MIN, to + 208);
  for (size_t g = 0; g < kSmallGroups; ++g) {
    const int8_t scale = choose_scale(group(g), wanted[g], unit);
    to[192 + g] = static_cast<uint8_t>(scale);
    const float scale_inverse = inverse(unit * static_cast<float>(scale));
    for (size_t i = 0; i < kSmallCols; ++i) {
      const size_t c = g * kSmallCols + i;
      const auto code =
          static_cast<int>(nearest_code(x[c] * scale_inverse, kLeastCode, kMostCode) - kLeastCode);
      to[c / 128 * 64 + c % 64] |= static_cast<uint8_t>((code & 15) << (c % 128 / 64 * 4));
      to[128 + c / 128 * 32 + c % 32] |= static_cast<uint8_t>((code >> 4) << (c % 128 / 32 * 2));
    }
  }
}

}  // namespace sluice
