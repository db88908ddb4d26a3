#pragma once

#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// log(1 + e^x) = max(x, 0) + log(1 + u), where u = e^-|x|; log(1 + u) = 2 atanh(z), where
// z = u / (2 + u) is at most 1/3. Eight terms of atanh's series leave out less than 2e-9 of it.
[[maybe_unused]] Vf softplus(Vf x) {
  const Vf u = exp(min(x, -x));
  const Vf z = u / (2.0f + u), square = z * z;
  Vf sum = splat(1.0f / 15);
  for (int n = 13; n > 0; n -= 2) sum = fma(sum, square, splat(1.0f / static_cast<float>(n)));
  return fma(2.0f * z, sum, max(Vf{}, x));
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
