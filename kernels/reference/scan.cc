#include <algorithm>
#include <cmath>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {

void ReferenceKernels::decay(Tensor steps, const DecayParams& params, Tensor decays) const {
  check_decay(steps, params, decays);
  for (int64_t r = 0; r < steps.rows; ++r) {
    for (int64_t h = 0; h < steps.cols; ++h) {
      float& at = steps.row<float>(r)[h];
      const double x = double{at} + params.bias[h];
      const double stored = params.log_rates[h / params.of_head];
      const double rate = params.negative_rates ? -stored : std::exp(stored);
      const double step =
          params.floor < 0
              ? 1 / (1 + std::exp(-rate * x))
              : std::clamp<double>(x > 30 ? x : std::log1p(std::exp(x)), params.least, params.most);
      at = static_cast<float>(step);
      decays.row<float>(r)[h] =
          static_cast<float>(std::exp((params.floor < 0 ? params.floor : -rate) * step));
    }
  }
}

void ReferenceKernels::slope_decays(const DecaySlopes& slopes, Tensor decays) const {
  check_slope_decays(slopes, decays);
  for (int64_t r = 0; r < decays.rows; ++r) {
    for (int64_t c = 0; c < decays.cols; ++c) {
      const auto head = static_cast<double>(slopes.first + c + 1);
      const double slope = std::exp2(-8 * head / static_cast<double>(slopes.heads));
      decays.row<float>(r)[c] = static_cast<float>(std::exp(-slopes.factor * slope));
    }
  }
}

void ReferenceKernels::scan(const ScanInputs& in, const ScanParams& params, const StateRows& state,
                            Tensor out) const {
  check_scan(in, params, state, out);
  const int64_t d = params.key_dim, value_dim = state.cache.cols, heads = in.steps.cols;
  const int64_t key_heads = in.keys.cols / d, served = heads / key_heads;
  const auto chunks = state.groups.front().chunks;
  for (size_t i = 0; i < chunks.size(); ++i) {
    for (int64_t c = 0; c < out.cols; ++c) {
      const int64_t h = c / value_dim, column = c % value_dim;
      const int64_t first_key = (params.tiled ? h % key_heads : h / served) * d;
      auto of_state = [&](int64_t k) -> float& { return state_row(state, i, h * d + k)[column]; };
      for (int64_t k = 0; k < d && chunks[i].first_position == 0; ++k) of_state(k) = 0;
      for (int64_t r = chunks[i].first_row; r < chunks[i].first_row + chunks[i].rows; ++r) {
        const float* keys = in.keys.row<float>(r) + first_key;
        const float* queries = in.queries.row<float>(r) + first_key;
        const float* decays = in.decays.row<float>(r) + (params.decays_rows ? h * d : h);
        const auto decay = [&](int64_t k) -> double { return decays[params.decays_rows ? k : 0]; };
        const double value = in.values.row<float>(r)[c];
        double known = 0, result = params.skip != nullptr ? params.skip[h] * value : 0;
        for (int64_t k = 0; k < d && params.delta; ++k) known += decay(k) * of_state(k) * keys[k];
        const double change = in.steps.row<float>(r)[h] * (value - known);
        for (int64_t k = 0; k < d; ++k) {
          const double kept = decay(k) * of_state(k) + keys[k] * change;
          of_state(k) = static_cast<float>(kept);
          result += kept * queries[k];
        }
        out.row<float>(r)[c] = static_cast<float>(result);
      }
    }
  }
}

}  // namespace sluice
