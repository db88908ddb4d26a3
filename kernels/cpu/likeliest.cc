#include <algorithm>
#include <array>
#include <limits>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {
namespace {

constexpr int64_t kLanes = 16;  // which the compiler turns into vectors

// NaN where the row holds one.
float largest(const float* row, int64_t cols) {
  std::array<float, kLanes> top;
  top.fill(-std::numeric_limits<float>::infinity());
  std::array<uint32_t, kLanes> nan{};
  int64_t c = 0;
  for (; c + kLanes <= cols; c += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      const float x = row[c + l];
      const auto lane = static_cast<size_t>(l);
      top[lane] = x > top[lane] ? x : top[lane];
      nan[lane] |= x != x ? 1 : 0;
    }
  }
  for (; c < cols; ++c) {
    top[0] = row[c] > top[0] ? row[c] : top[0];
    nan[0] |= row[c] != row[c] ? 1 : 0;
  }
  if (std::ranges::count(nan, 0u) != kLanes) return std::numeric_limits<float>::quiet_NaN();
  return *std::ranges::max_element(top);
}

}  // namespace

TokenLogit likeliest(std::span<const float> row) {
  const float top = largest(row.data(), std::ssize(row));
  const auto first = std::ranges::find(row, top);
  return {top, first == row.end() ? 0 : static_cast<int32_t>(first - row.begin())};
}

void CpuKernels::likeliest(Tensor logits, std::span<TokenLogit> out) const {
  check_likeliest(logits);
  for_rows(logits, [&](int64_t r) {
    out[static_cast<size_t>(r)] =
        sluice::likeliest({logits.row<float>(r), static_cast<size_t>(logits.cols)});
  });
}

}  // namespace sluice
