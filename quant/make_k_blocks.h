// Blocks of 256 columns (K-quants) of float32.
#pragma once

#include <cstdint>
#include <span>

namespace sluice {

inline constexpr int kSuperCols = 256;
using SuperColumns = std::span<const float, kSuperCols>;

void make_q4_k(SuperColumns x, uint8_t* to);
void make_q5_k(SuperColumns x, uint8_t* to);
void make_q6_k(SuperColumns x, uint8_t* to);

}  // namespace sluice
