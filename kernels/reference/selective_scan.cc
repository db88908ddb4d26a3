#include <cmath>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {

void ReferenceKernels::selective_scan(const SelectiveInputs& in, const SelectiveParams& params,
                                      const StateRows& state, Tensor out) const {
  check_selective_scan(in, params, state, out);
  const int64_t d = in.keys.cols;
  const auto chunks = state.groups.front().chunks;
  for (size_t i = 0; i < chunks.size(); ++i) {
    for (int64_t c = 0; c < out.cols; ++c) {
      for (int64_t k = 0; k < d && chunks[i].first_position == 0; ++k)
        state_row(state, i, k)[c] = 0;
      for (int64_t r = chunks[i].first_row; r < chunks[i].first_row + chunks[i].rows; ++r) {
        const double x = in.steps.row<float>(r)[c], value = in.values.row<float>(r)[c];
        const double step = std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x)));
        double result = params.skip[c] * value;
        for (int64_t k = 0; k < d; ++k) {
          float& at = state_row(state, i, k)[c];
          const double rate = params.log_rates[c * d + k];
          const double left = std::exp((params.negative_rates ? rate : -std::exp(rate)) * step);
          const double kept = left * at + step * value * in.keys.row<float>(r)[k];
          at = static_cast<float>(kept);
          result += kept * in.queries.row<float>(r)[k];
        }
        out.row<float>(r)[c] = static_cast<float>(result);
      }
    }
  }
}

}  // namespace sluice
