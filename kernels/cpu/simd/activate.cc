#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/silu.h"
#include "kernels/cpu/simd/softplus.h"
#include "kernels/kernels.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// 0.5 x (1 + erf(x / sqrt 2)) = x (1 - q) above zero and x q below, q = 0.5 erfc(|x| / sqrt 2).
// erfc within 1.5e-7: Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
Vf gelu(Vf x) {
  const Vf z = max(x, -x) * 0.70710678118654752f;
  const Vf t = 1.0f / (1.0f + 0.3275911f * z);
  Vf p = fma(t, splat(1.061405429f), splat(-1.453152027f));
  p = fma(p, t, splat(1.421413741f));
  p = fma(p, t, splat(-0.284496736f));
  p = fma(p, t, splat(0.254829592f));
  const Vf q = 0.5f * p * t * exp(-z * z);
  return x * (x > 0.0f ? 1.0f - q : q);
}

// 0.5 x (1 + tanh(u)) = x / (1 + exp(-2 u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
Vf gelu_tanh(Vf x) {
  const Vf u = 0.79788456080286536f * (x + 0.044715f * x * x * x);
  return x / (1.0f + exp(-2.0f * u));
}

Vf relu(Vf x) { return x > 0.0f ? x : Vf{}; }

Vf relu_squared(Vf x) { return relu(x) * x; }

// alpha_p x^2 + beta x above zero, alpha_n (exp(min(x, eps)) - 1 - x) + beta x below.
Vf xielu(const XieluValues& v, Vf x) {
  const Vf curve = exp(min(x, splat(v.eps))) - 1.0f - x;
  return (x > 0.0f ? v.alpha_p * x * x : v.alpha_n * curve) + v.beta * x;
}

// Rows of gate(x) * factor(clamp(up, limit)).
template <class Gate, class Factor>
void limited_row(const ActivationJob& job, const float* x, const float* up, int64_t count,
                 float* out, Gate gate, Factor factor) {
  const auto clamped = [&](Vf v) { return max(min(v, splat(job.limit)), splat(-job.limit)); };
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    store(out + i, gate(load(x + i)) * factor(clamped(load(up + i))));
  const int64_t left = count - i;
  if (left == 0) return;
  store_some(out + i, gate(load_some(x + i, left, 0)) * factor(clamped(load_some(up + i, left, 0))),
             left);
}

template <bool kGated, class Activated>
void activate_row(Activated activated, const float* x, const float* up, int64_t count, float* out) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    Vf v = activated(load(x + i));
    if constexpr (kGated) v *= load(up + i);
    store(out + i, v);
  }
  const int64_t left = count - i;
  if (left > 0) {
    Vf v = activated(load_some(x + i, left, 0));
    if constexpr (kGated) v *= load_some(up + i, left, 0);
    store_some(out + i, v, left);
  }
}

}  // namespace

void activate(const ActivationJob& job, const float* x, const float* up, int64_t count,
              float* out) {
  auto with = [&](auto activated) {
    if (up != nullptr) return activate_row<true>(activated, x, up, count, out);
    activate_row<false>(activated, x, nullptr, count, out);
  };
  switch (job.activation) {
    case Activation::silu:
      return with([](Vf v) { return silu(v); });
    case Activation::gelu:
      return with([](Vf v) { return gelu(v); });
    case Activation::gelu_tanh:
      return with([](Vf v) { return gelu_tanh(v); });
    case Activation::relu:
      return with([](Vf v) { return relu(v); });
    case Activation::relu_squared:
      return with([](Vf v) { return relu_squared(v); });
    case Activation::xielu:
      return with([&](Vf v) { return xielu(job.xielu, v); });
    case Activation::sigmoid:
      return with([](Vf v) { return 1.0f / (1.0f + exp(-v)); });
    case Activation::softplus:
      return with([](Vf v) { return softplus(v); });
    case Activation::identity:
      return with([](Vf v) { return v; });
    case Activation::clamped_swiglu:
      return limited_row(
          job, x, up, count, out,
          [&](Vf v) {
            const Vf gate = min(v, splat(job.limit));
            return gate / (1.0f + exp(-job.alpha * gate));
          },
          [](Vf v) { return 1.0f + v; });
    case Activation::clamped_silu:
      return limited_row(
          job, x, up, count, out, [&](Vf v) { return silu(min(v, splat(job.limit))); },
          [](Vf v) { return v; });
    case Activation::silu_clamped:
      return limited_row(
          job, x, up, count, out, [&](Vf v) { return min(silu(v), splat(job.limit)); },
          [](Vf v) { return v; });
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
