#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {

using cpu::kScanColumns;
using cpu::ScanJob;

void CpuKernels::decay(Tensor steps, const DecayParams& params, Tensor decays) const {
  check_decay(steps, params, decays);
  for_rows(steps, [&](int64_t row) {
    for (int64_t h = 0; h < steps.cols; ++h) {
      float& at = steps.row<float>(row)[h];
      const float x = at + params.bias[h];
      const float stored = params.log_rates[h / params.of_head];
      const float rate = params.negative_rates ? -stored : std::exp(stored);
      if (params.floor < 0) {
        at = 1 / (1 + std::exp(-rate * x));
        decays.row<float>(row)[h] = std::exp(params.floor * at);
        continue;
      }
      const float step = x > 30 ? x : std::log1p(std::exp(x));
      at = std::min(std::max(step, params.least), params.most);
      decays.row<float>(row)[h] = std::exp(-rate * at);
    }
  });
}

void CpuKernels::slope_decays(const DecaySlopes& slopes, Tensor decays) const {
  check_slope_decays(slopes, decays);
  for_rows(decays, [&](int64_t row) {
    for (int64_t c = 0; c < decays.cols; ++c) {
      const auto head = static_cast<float>(slopes.first + c + 1);
      const float slope = std::exp2(-8 * head / static_cast<float>(slopes.heads));
      decays.row<float>(row)[c] = std::exp(-slopes.factor * slope);
    }
  });
}

int64_t scan_workspace(int64_t state_keys, int threads) {
  return threads * state_keys * kScanColumns * static_cast<int64_t>(sizeof(float));
}

namespace {

// Some columns of a head of one chunk's sequence.
struct Part {
  size_t chunk;
  int64_t head;
  int64_t column;
  int64_t cols;
};

// body(row of the part, its columns in the state)
template <class Body>
void each_row(const StateRows& state, const Part& part, int64_t key_dim, Body body) {
  for (int64_t k = 0; k < key_dim; ++k)
    body(k, state_row(state, part.chunk, part.head * key_dim + k) + part.column);
}

// The part's state: in its page, where all of it is in one, or else in `scratch`.
ScanJob state_of(const StateRows& state, const Part& part, int64_t key_dim, float* scratch) {
  const int64_t first = part.head * key_dim;
  ScanJob job{.state = state_row(state, part.chunk, first) + part.column,
              .state_stride = state.cache.cols,
              .key_dim = key_dim,
              .cols = part.cols};
  if (state_run(state.cache, first) < key_dim) {
    job.state = scratch;
    job.state_stride = kScanColumns;
  }
  const bool fresh = state.groups.front().chunks[part.chunk].first_position == 0;
  if (!fresh && job.state != scratch) return job;
  each_row(state, part, key_dim, [&](int64_t k, const float* row) {
    float* to = job.state + k * job.state_stride;
    if (fresh) {
      std::fill_n(to, part.cols, 0.0F);
    } else if (job.state == scratch) {
      std::copy_n(row, part.cols, to);
    }
  });
  return job;
}

}  // namespace

void CpuKernels::scan(const ScanInputs& in, const ScanParams& params, const StateRows& state,
                      Tensor out) const {
  check_scan(in, params, state, out);
  const int64_t d = params.key_dim, value_dim = state.cache.cols, heads = in.steps.cols;
  const int64_t key_heads = in.keys.cols / d, served = heads / key_heads;
  const int64_t blocks = ceil_div(value_dim, kScanColumns);
  const auto chunks = state.groups.front().chunks;
  auto* work = reinterpret_cast<float*>(scratch(scan_workspace(d, pool_.size())));
  constexpr int64_t kElements = 65536;  // of states times rows; less is not worth waking a thread
  const int64_t each = d * std::min(value_dim, kScanColumns) *
                       std::max<int64_t>(1, out.rows / std::max<int64_t>(1, std::ssize(chunks)));
  const int64_t grain = std::max<int64_t>(1, kElements / each);
  auto run = [&](int64_t index, int worker) {
    const int64_t column = index % blocks * kScanColumns;
    const Part part{static_cast<size_t>(index / blocks / heads), index / blocks % heads, column,
                    std::min(kScanColumns, value_dim - column)};
    float* own = work + worker * d * kScanColumns;
    ScanJob job = state_of(state, part, d, own);
    const int64_t row = chunks[part.chunk].first_row;
    const int64_t first_key = (params.tiled ? part.head % key_heads : part.head / served) * d;
    const int64_t first = part.head * value_dim + part.column;
    job.queries = in.queries.row<float>(row) + first_key;
    job.query_stride = in.queries.stride;
    job.keys = in.keys.row<float>(row) + first_key;
    job.key_stride = in.keys.stride;
    job.values = in.values.row<float>(row) + first;
    job.value_stride = in.values.stride;
    job.decays = in.decays.row<float>(row) + (params.decays_rows ? part.head * d : part.head);
    job.decay_stride = in.decays.stride;
    job.steps = in.steps.row<float>(row) + part.head;
    job.step_stride = in.steps.stride;
    job.out = out.row<float>(row) + first;
    job.out_stride = out.stride;
    job.rows = chunks[part.chunk].rows;
    job.delta = params.delta;
    job.decays_rows = params.decays_rows;
    job.skip = params.skip != nullptr ? params.skip[part.head] : 0;
    ops_.scan(job);
    if (job.state != own) return;
    each_row(state, part, d,
             [&](int64_t k, float* to) { std::copy_n(own + k * kScanColumns, part.cols, to); });
  };
  pool_.parallel_for(std::ssize(chunks) * heads * blocks, grain,
                     [&](int64_t begin, int64_t end, int worker) {
                       for (int64_t i = begin; i < end; ++i) run(i, worker);
                     });
}

}  // namespace sluice
