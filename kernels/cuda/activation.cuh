// Activations of one number.
#pragma once

#include "kernels/cuda/ops.h"
#include "kernels/cuda/simt.h"

namespace sluice::cuda {

__device__ inline float softplus(float x) { return x > 30 ? x : log1pf(expf(x)); }

// arXiv:2411.13010, (11); values as kXieluValues has them.
__device__ inline float xielu(const float* values, float x) {
  const float beta = values[2];
  if (x > 0) return softplus(values[0]) * x * x + beta * x;
  const float alpha = beta + softplus(values[1]);
  return (expm1f(fminf(x, values[3])) - x) * alpha + beta * x;
}

template <Activation kActivation>
__device__ float activated(const float* values, float x) {
  constexpr float kSqrtHalf = 0.70710678118654752f;       // sqrt(1 / 2)
  constexpr float kSqrtTwoOverPi = 0.79788456080286536f;  // sqrt(2 / pi)
  if constexpr (kActivation == Activation::silu) return x / (1 + expf(-x));
  if constexpr (kActivation == Activation::gelu) return 0.5f * x * (1 + erff(x * kSqrtHalf));
  if constexpr (kActivation == Activation::gelu_tanh) {  // arXiv:1606.08415, section 2
    return 0.5f * x * (1 + tanhf(kSqrtTwoOverPi * (x + 0.044715f * x * x * x)));
  }
  if constexpr (kActivation == Activation::relu_squared) return x > 0 ? x * x : 0;
  if constexpr (kActivation == Activation::xielu) return xielu(values, x);
  if constexpr (kActivation == Activation::sigmoid) return 1 / (1 + expf(-x));
  if constexpr (kActivation == Activation::softplus) return softplus(x);
  if constexpr (kActivation == Activation::identity) return x;
  return x > 0 ? x : 0;
}

// The same of an activation that is known at run time, and takes no values.
__device__ inline float activated(Activation activation, float x) {
  switch (activation) {
    case Activation::silu:
      return activated<Activation::silu>(nullptr, x);
    case Activation::gelu:
      return activated<Activation::gelu>(nullptr, x);
    case Activation::gelu_tanh:
      return activated<Activation::gelu_tanh>(nullptr, x);
    case Activation::relu:
      return activated<Activation::relu>(nullptr, x);
    case Activation::relu_squared:
      return activated<Activation::relu_squared>(nullptr, x);
    case Activation::sigmoid:
      return activated<Activation::sigmoid>(nullptr, x);
    default:
      return x;
  }
}

// The value of an activation that has a limit.
template <Activation kActivation>
__device__ float limited(float limit, float alpha, float x, float up) {
  const float gate = fminf(x, limit), factor = fmaxf(fminf(up, limit), -limit);
  if constexpr (kActivation == Activation::clamped_silu) return gate / (1 + expf(-gate)) * factor;
  if constexpr (kActivation == Activation::silu_clamped)
    return fminf(x / (1 + expf(-x)), limit) * factor;
  return gate / (1 + expf(-alpha * gate)) * (1 + factor);
}

inline Gating gating_of(const ExpertWeights& w) {
  return {w.activation.kind, w.activation.limit, w.activation.alpha, w.gate_multiplier};
}

// gated: the activation is multiplied by a factor.
__device__ inline float gated_value(const Gating& a, float gate, float factor, bool gated) {
  if (a.multiplier != 1) gate *= a.multiplier;
  if (a.kind == Activation::clamped_swiglu)
    return limited<Activation::clamped_swiglu>(a.limit, a.alpha, gate, factor);
  if (a.kind == Activation::clamped_silu)
    return limited<Activation::clamped_silu>(a.limit, a.alpha, gate, factor);
  if (a.kind == Activation::silu_clamped)
    return limited<Activation::silu_clamped>(a.limit, a.alpha, gate, factor);
  const float value = activated(a.kind, gate);
  return gated ? value * factor : value;
}

}  // namespace sluice::cuda
