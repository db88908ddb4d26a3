#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// kVectors of columns, of which the last has `last` (kLanes: all). Sums over a state's rows are
// two, of the even ones and of the odd ones.
template <int kVectors, bool kDelta, bool kWhole>
class Columns {
 public:
  Columns(const ScanJob& job, int64_t column, int64_t last)
      : job_(job), column_(column), last_(last) {}

  void run() const {
    for (int64_t r = 0; r < job_.rows; ++r) {
      const float* keys = job_.keys + r * job_.key_stride;
      const float* queries = job_.queries + r * job_.query_stride;
      const float decay = job_.decays[r * job_.decay_stride];
      const float step = job_.steps[r * job_.step_stride];
      Vf values[kVectors], change[kVectors], known[kVectors] = {}, sums[kVectors];
      get(job_.values + r * job_.value_stride + column_, values);
      if constexpr (kDelta) look_up(keys, known);
      for (int i = 0; i < kVectors; ++i) change[i] = step * (values[i] - decay * known[i]);
      update(keys, queries, decay, change, sums);
      for (int i = 0; i < kVectors; ++i) sums[i] = fma(splat(job_.skip), values[i], sums[i]);
      put(job_.out + r * job_.out_stride + column_, sums);
    }
  }

 private:
  void get(const float* from, Vf (&to)[kVectors]) const {
    for (int i = 0; i + 1 < kVectors; ++i) to[i] = load(from + i * kLanes);
    const float* end = from + (kVectors - 1) * kLanes;
    to[kVectors - 1] = kWhole ? load(end) : load_some(end, last_, 0);
  }
  void put(float* to, const Vf (&from)[kVectors]) const {
    for (int i = 0; i + 1 < kVectors; ++i) store(to + i * kLanes, from[i]);
    float* end = to + (kVectors - 1) * kLanes;
    if constexpr (kWhole) {
      store(end, from[kVectors - 1]);
    } else {
      store_some(end, from[kVectors - 1], last_);
    }
  }
  float* state(int64_t key) const { return job_.state + key * job_.state_stride + column_; }

  // What the state gives for a key, before it decays.
  void look_up(const float* keys, Vf (&known)[kVectors]) const {
    Vf sums[2][kVectors] = {};
    auto add = [&](int64_t k, Vf(&to)[kVectors]) {
      Vf row[kVectors];
      get(state(k), row);
      for (int i = 0; i < kVectors; ++i) to[i] = fma(row[i], splat(keys[k]), to[i]);
    };
    int64_t k = 0;
    for (; k + 2 <= job_.key_dim; k += 2) {
      add(k, sums[0]);
      add(k + 1, sums[1]);
    }
    if (k < job_.key_dim) add(k, sums[0]);
    for (int i = 0; i < kVectors; ++i) known[i] = sums[0][i] + sums[1][i];
  }

  // The state after the token, and what it gives for a query.
  void update(const float* keys, const float* queries, float decay, const Vf (&change)[kVectors],
              Vf (&result)[kVectors]) const {
    Vf sums[2][kVectors] = {};
    auto add = [&](int64_t k, Vf(&to)[kVectors]) {
      Vf row[kVectors];
      get(state(k), row);
      for (int i = 0; i < kVectors; ++i) {
        row[i] = fma(splat(keys[k]), change[i], decay * row[i]);
        to[i] = fma(row[i], splat(queries[k]), to[i]);
      }
      put(state(k), row);
    };
    int64_t k = 0;
    for (; k + 2 <= job_.key_dim; k += 2) {
      add(k, sums[0]);
      add(k + 1, sums[1]);
    }
    if (k < job_.key_dim) add(k, sums[0]);
    for (int i = 0; i < kVectors; ++i) result[i] = sums[0][i] + sums[1][i];
  }

  const ScanJob& job_;
  int64_t column_, last_;
};

template <bool kDelta>
void scan_columns(const ScanJob& job) {
  constexpr int kSide = 4;  // vectors side by side
  int64_t c = 0;
  for (; c + kSide * kLanes <= job.cols; c += kSide * kLanes)
    Columns<kSide, kDelta, true>(job, c, kLanes).run();
  for (; c + kLanes <= job.cols; c += kLanes) Columns<1, kDelta, true>(job, c, kLanes).run();
  if (c < job.cols) Columns<1, kDelta, false>(job, c, job.cols - c).run();
}

}  // namespace

void scan(const ScanJob& job) { job.delta ? scan_columns<true>(job) : scan_columns<false>(job); }

}  // namespace sluice::cpu::SLUICE_ISA
