#include <algorithm>
#include <array>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {

void CpuKernels::causal_conv(Tensor x, const ConvParams& params, const StateRows& state,
                             Tensor y) const {
  check_causal_conv(x, params, state, y);
  constexpr int64_t kColumns = 256;    // of a job
  constexpr int64_t kElements = 8192;  // less is not worth waking a thread
  const auto chunks = state.groups.front().chunks;
  const int64_t parts = ceil_div(x.cols, kColumns), jobs = std::ssize(chunks) * parts;
  const int64_t rows = std::max<int64_t>(1, x.rows / std::max<int64_t>(1, std::ssize(chunks)));
  const int64_t grain = std::max<int64_t>(1, kElements / (rows * kColumns));
  pool_.parallel_for(jobs, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const auto chunk = static_cast<size_t>(i / parts);
      const SequenceChunk& c = chunks[chunk];
      const int64_t column = i % parts * kColumns;
      std::array<float*, kMostConvWidth> inputs{};
      for (int64_t p = 0; p + 1 < params.width; ++p)
        inputs[static_cast<size_t>(p)] = state_row(state, chunk, p) + column;
      ops_.causal_conv({.x = x.row<float>(c.first_row) + column,
                        .x_stride = x.stride,
                        .y = y.row<float>(c.first_row) + column,
                        .y_stride = y.stride,
                        .rows = c.rows,
                        .cols = std::min(kColumns, x.cols - column),
                        .weight = params.weight + column * params.width,
                        .bias = params.bias != nullptr ? params.bias + column : nullptr,
                        .width = params.width,
                        .silu = params.silu,
                        .fresh = c.first_position == 0,
                        .inputs = inputs.data()});
    }
  });
}

}  // namespace sluice
