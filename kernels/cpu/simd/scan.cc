#include <algorithm>

#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// The decay of a state: of all rows alike, or of each by itself, where a delta rule subtracts what
// it has for the key.
enum class Rule : uint8_t { plain, delta, delta_of_rows };

// kVectors of columns, of which the last has `last` (kLanes: all). Sums over a state's rows are
// two, of the even ones and of the odd ones. A pass over the state brings it forward by a token,
// and gives what it has for the next token's key.
template <int kVectors, Rule kRule, bool kWhole>
class Columns {
  static constexpr bool kDelta = kRule != Rule::plain, kOfRows = kRule == Rule::delta_of_rows;

 public:
  Columns(const ScanJob& job, int64_t column, int64_t last)
      : job_(job), column_(column), last_(last) {}

  void run() const {
    Vf known[kVectors] = {};
    if constexpr (kDelta) look_up(known);
    for (int64_t r = 0; r < job_.rows; ++r) {
      const float decay = kOfRows ? 1.0f : job_.decays[r * job_.decay_stride];
      const float step = job_.steps[r * job_.step_stride];
      Vf values[kVectors], change[kVectors], result[kVectors];
      get(job_.values + r * job_.value_stride + column_, values);
      for (int i = 0; i < kVectors; ++i) change[i] = step * (values[i] - decay * known[i]);
      update(r, decay, change, result, known);
      for (int i = 0; i < kVectors; ++i) result[i] = fma(splat(job_.skip), values[i], result[i]);
      put(job_.out + r * job_.out_stride + column_, result);
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
  // The factor of a row of the state in what a token's key finds, beside that of all rows.
  float key_of(const float* keys, int64_t token, int64_t k) const {
    return kOfRows ? keys[k] * job_.decays[token * job_.decay_stride + k] : keys[k];
  }
  float* state(int64_t key) const { return job_.state + key * job_.state_stride + column_; }

  // Adds the state's value for the first token's key, before the state decays.
  void look_up(Vf (&known)[kVectors]) const {
    for (int64_t k = 0; k < job_.key_dim; ++k) {
      Vf row[kVectors];
      get(state(k), row);
      const float key = key_of(job_.keys, 0, k);
      for (int i = 0; i < kVectors; ++i) known[i] = fma(row[i], splat(key), known[i]);
    }
  }

  // The state after token `r`, what it gives for its query, and for the next token's key.
  void update(int64_t r, float decay, const Vf (&change)[kVectors], Vf (&result)[kVectors],
              Vf (&known)[kVectors]) const {
    const float* keys = job_.keys + r * job_.key_stride;
    const float* queries = job_.queries + r * job_.query_stride;
    const int64_t after = std::min(r + 1, job_.rows - 1);
    const float* next = job_.keys + after * job_.key_stride;
    const float* decays = job_.decays + r * job_.decay_stride;
    Vf sums[kVectors] = {}, known_sums[kVectors] = {};
    for (int64_t k = 0; k < job_.key_dim; ++k) {
      Vf row[kVectors];
      get(state(k), row);
      const float left = kOfRows ? decays[k] : decay,
                  next_key = kDelta ? key_of(next, after, k) : 0;
      for (int i = 0; i < kVectors; ++i) {
        row[i] = fma(splat(keys[k]), change[i], left * row[i]);
        sums[i] = fma(row[i], splat(queries[k]), sums[i]);
        if constexpr (kDelta) known_sums[i] = fma(row[i], splat(next_key), known_sums[i]);
      }
      put(state(k), row);
    }
    for (int i = 0; i < kVectors; ++i) {
      result[i] = sums[i];
      known[i] = known_sums[i];
    }
  }

  const ScanJob& job_;
  int64_t column_, last_;
};

template <Rule kRule>
void scan_columns(const ScanJob& job) {
  constexpr int kSide = 4;  // vectors side by side
  int64_t c = 0;
  for (; c + kSide * kLanes <= job.cols; c += kSide * kLanes)
    Columns<kSide, kRule, true>(job, c, kLanes).run();
  for (; c + kLanes <= job.cols; c += kLanes) Columns<1, kRule, true>(job, c, kLanes).run();
  if (c < job.cols) Columns<1, kRule, false>(job, c, job.cols - c).run();
}

}  // namespace

void scan(const ScanJob& job) {
  if (job.decays_rows) return scan_columns<Rule::delta_of_rows>(job);
  job.delta ? scan_columns<Rule::delta>(job) : scan_columns<Rule::plain>(job);
}

}  // namespace sluice::cpu::SLUICE_ISA
