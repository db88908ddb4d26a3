#include <algorithm>
#include <array>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {

using cpu::kScanColumns;

static_assert(kScanColumns >= 2 * cpu::kSelectiveLanes, "scratch of a scan is enough");

void CpuKernels::selective_scan(const SelectiveInputs& in, const SelectiveParams& params,
                                const StateRows& state, Tensor out) const {
  check_selective_scan(in, params, state, out);
  constexpr int64_t kChannels = 64;    // of a job
  constexpr int64_t kElements = 8192;  // of states times rows; less is not worth waking a thread
  const int64_t d = in.keys.cols, parts = ceil_div(out.cols, kChannels);
  const auto chunks = state.groups.front().chunks;
  auto* work = reinterpret_cast<float*>(scratch(scan_workspace(d, pool_.size())));
  const int64_t rows = std::max<int64_t>(1, out.rows / std::max<int64_t>(1, std::ssize(chunks)));
  const int64_t grain = std::max<int64_t>(1, kElements / (rows * d * kChannels));
  auto run = [&](int64_t index, int worker) {
    const auto chunk = static_cast<size_t>(index / parts);
    const SequenceChunk& c = chunks[chunk];
    const int64_t channel = index % parts * kChannels;
    std::array<float*, kMostSelectiveKeys> state_rows{};
    for (int64_t k = 0; k < d; ++k)
      state_rows[static_cast<size_t>(k)] = state_row(state, chunk, k) + channel;
    ops_.selective_scan({.queries = in.queries.row<float>(c.first_row),
                         .query_stride = in.queries.stride,
                         .keys = in.keys.row<float>(c.first_row),
                         .key_stride = in.keys.stride,
                         .values = in.values.row<float>(c.first_row) + channel,
                         .value_stride = in.values.stride,
                         .steps = in.steps.row<float>(c.first_row) + channel,
                         .step_stride = in.steps.stride,
                         .out = out.row<float>(c.first_row) + channel,
                         .out_stride = out.stride,
                         .log_rates = params.log_rates + channel * d,
                         .negative_rates = params.negative_rates,
                         .skip = params.skip + channel,
                         .fresh = c.first_position == 0,
                         .state = state_rows.data(),
                         .scratch = work + worker * d * kScanColumns,
                         .key_dim = d,
                         .rows = c.rows,
                         .channels = std::min(kChannels, out.cols - channel)});
  };
  pool_.parallel_for(std::ssize(chunks) * parts, grain,
                     [&](int64_t begin, int64_t end, int worker) {
                       for (int64_t i = begin; i < end; ++i) run(i, worker);
                     });
}

}  // namespace sluice
