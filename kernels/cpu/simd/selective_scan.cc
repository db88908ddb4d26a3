#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/softplus.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

static_assert(kLanes <= kSelectiveLanes);

// A lane is a channel. Its rates and its state are in the scratch for the rows of the chunk.
template <bool kWhole>
void scan_lanes(const SelectiveJob& job, int64_t channel, int64_t count) {
  const auto get = [&](const float* from) {
    return kWhole ? load(from) : load_some(from, count, 0);
  };
  const auto put = [&](float* to, Vf v) { kWhole ? store(to, v) : store_some(to, v, count); };
  float* rates = job.scratch;
  float* state = rates + job.key_dim * kLanes;
  for (int64_t k = 0; k < job.key_dim; ++k) {
    Vf logs{};
    for (int64_t i = 0; i < count; ++i) logs[i] = job.log_rates[(channel + i) * job.key_dim + k];
    store(rates + k * kLanes, job.negative_rates ? logs : -exp(logs));
    store(state + k * kLanes, job.fresh ? Vf{} : get(job.state[k] + channel));
  }
  const Vf skip = get(job.skip + channel);
  for (int64_t r = 0; r < job.rows; ++r) {
    const float* keys = job.keys + r * job.key_stride;
    const float* queries = job.queries + r * job.query_stride;
    const Vf step = softplus(get(job.steps + r * job.step_stride + channel));
    const Vf value = get(job.values + r * job.value_stride + channel);
    const Vf change = step * value;
    Vf sum{};
    for (int64_t k = 0; k < job.key_dim; ++k) {
      float* at = state + k * kLanes;
      const Vf kept = exp(load(rates + k * kLanes) * step) * load(at);
      const Vf changed = fma(change, splat(keys[k]), kept);
      store(at, changed);
      sum = fma(changed, splat(queries[k]), sum);
    }
    put(job.out + r * job.out_stride + channel, fma(skip, value, sum));
  }
  for (int64_t k = 0; k < job.key_dim; ++k) put(job.state[k] + channel, load(state + k * kLanes));
}

}  // namespace

void selective_scan(const SelectiveJob& job) {
  int64_t c = 0;
  for (; c + kLanes <= job.channels; c += kLanes) scan_lanes<true>(job, c, kLanes);
  if (c < job.channels) scan_lanes<false>(job, c, job.channels - c);
}

}  // namespace sluice::cpu::SLUICE_ISA
