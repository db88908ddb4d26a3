#include <cmath>

#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/kernels.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

Vf silu(Vf x) { return x / (1.0f + exp(-x)); }

// 0.5 x (1 + erf(x / sqrt 2)): lane by lane, as no model runs it hot.
Vf gelu(Vf x) {
  for (int64_t i = 0; i < kLanes; ++i) {
    x[i] = 0.5f * x[i] * (1.0f + ::erff(x[i] * 0.70710678118654752f));
  }
  return x;
}

// 0.5 x (1 + tanh(u)) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
Vf gelu_tanh(Vf x) {
  const Vf u = 0.79788456080286536f * (x + 0.044715f * x * x * x);
  return x / (1.0f + exp(-2.0f * u));
}

Vf relu(Vf x) { return x > 0.0f ? x : Vf{}; }

template <Vf (*activate)(Vf)>
void gate_with(const float* gate, const float* up, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store(out + i, activate(load(gate + i)) * load(up + i));
  }
  const int64_t left = count - i;
  if (left > 0) {
    const Vf last = activate(load_some(gate + i, left, 0)) * load_some(up + i, left, 0);
    store_some(out + i, last, left);
  }
}

}  // namespace

void gated_activation(Activation activation, const float* gate, const float* up, int64_t count,
                      float* out) {
  switch (activation) {
    case Activation::silu:
      return gate_with<silu>(gate, up, count, out);
    case Activation::gelu:
      return gate_with<gelu>(gate, up, count, out);
    case Activation::gelu_tanh:
      return gate_with<gelu_tanh>(gate, up, count, out);
    case Activation::relu:
      return gate_with<relu>(gate, up, count, out);
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
