#include "kernels/cpu/simd/attention_partition.h"
#include "kernels/cpu/simd/float8.h"
#include "kernels/cpu/simd/tanh.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// 0, 1, 2, ...
Vf lane_numbers() {
  Vf v{};
  for (int64_t i = 0; i < kLanes; ++i) v[i] = static_cast<float>(i);
  return v;
}

}  // namespace

void change_scores(const AttentionJob& job, const ScoreRow& row) {
  const Vf lanes = lane_numbers();
  const float scale = in_pairs(job) ? job.scale : job.scale * sum_factor(job.dtype);
  for (int64_t k = row.unseen / kLanes * kLanes; k < row.count; k += kLanes) {
    Vf s = load(row.scores + k) * scale;
    if (row.key_scales != nullptr) s *= load(row.key_scales + k);
    if (job.soft_cap > 0) s = job.soft_cap * tanh(s / job.soft_cap);
    if (job.alibi_slopes != nullptr) {
      s += row.alibi_slope * (lanes + static_cast<float>(row.begin + k - row.position));
    }
    store(row.scores + k, s);
  }
  for (int64_t k = 0; k < row.unseen; ++k) row.scores[k] = -__builtin_inff();
}

}  // namespace sluice::cpu::SLUICE_ISA
