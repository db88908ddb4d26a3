#include <array>
#include <cmath>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {

void ReferenceKernels::causal_conv(Tensor x, const ConvParams& params, const StateRows& state,
                                   Tensor y) const {
  check_causal_conv(x, params, state, y);
  const auto chunks = state.groups.front().chunks;
  const int64_t past = params.width - 1;
  std::array<float, kMostConvWidth> inputs{};  // the last ones, then a row's own
  for (size_t i = 0; i < chunks.size(); ++i) {
    for (int64_t c = 0; c < x.cols; ++c) {
      for (int64_t p = 0; p < past; ++p)
        inputs[static_cast<size_t>(p)] =
            chunks[i].first_position > 0 ? state_row(state, i, p)[c] : 0.0F;
      for (int64_t r = chunks[i].first_row; r < chunks[i].first_row + chunks[i].rows; ++r) {
        inputs[static_cast<size_t>(past)] = x.row<float>(r)[c];
        double sum = params.bias != nullptr ? params.bias[c] : 0;
        for (int64_t w = 0; w <= past; ++w)
          sum += double{params.weight[c * params.width + w]} * inputs[static_cast<size_t>(w)];
        y.row<float>(r)[c] = static_cast<float>(params.silu ? sum / (1 + std::exp(-sum)) : sum);
        for (int64_t w = 0; w < past; ++w)
          inputs[static_cast<size_t>(w)] = inputs[static_cast<size_t>(w + 1)];
      }
      for (int64_t p = 0; p < past; ++p) state_row(state, i, p)[c] = inputs[static_cast<size_t>(p)];
    }
  }
}

}  // namespace sluice
