#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {
namespace {

// One row's: what experts count, and what they are chosen by.
struct Scores {
  std::array<float, kMostExperts> counts;
  std::array<float, kMostExperts> choice;
};

void score(const float* logits, int64_t experts, const RouterParams& params, Scores& s) {
  float* counts = s.counts.data();
  if (params.score == RouterScore::sigmoid) {
    for (int64_t e = 0; e < experts; ++e) counts[e] = 1 / (1 + std::exp(-logits[e]));
  } else if (params.score == RouterScore::sqrt_softplus) {
    for (int64_t e = 0; e < experts; ++e)
      counts[e] = std::sqrt(logits[e] > 30 ? logits[e] : std::log1p(std::exp(logits[e])));
  } else {
    const float largest = *std::max_element(logits, logits + experts);
    float total = 0;
    for (int64_t e = 0; e < experts; ++e) total += counts[e] = std::exp(logits[e] - largest);
    for (int64_t e = 0; e < experts; ++e) counts[e] /= total;
  }
  const float* by = params.chooses_logits ? logits : counts;
  for (int64_t e = 0; e < experts; ++e)
    s.choice[static_cast<size_t>(e)] = by[e] + (params.bias != nullptr ? params.bias[e] : 0);
}

// The first of the largest that are not taken; any of them where one is NaN.
int64_t take_largest(float* values, int64_t count, bool* taken) {
  int64_t best = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (!taken[i] && (best < 0 || values[i] > values[best])) best = i;
  }
  taken[best] = true;
  return best;
}

float two_largest(const float* values, int64_t count) {
  if (count == 1) return values[0];
  float first = -std::numeric_limits<float>::infinity(), second = first;
  for (int64_t i = 0; i < count; ++i) {
    second = std::max(second, std::min(first, values[i]));
    first = std::max(first, values[i]);
  }
  return first + second;
}

// Marks as taken what is in groups that are not chosen from.
void drop_groups(Scores& s, int64_t experts, const RouterParams& params, bool* taken) {
  const int64_t size = experts / params.groups;
  std::array<float, kMostExperts> sums;
  std::array<bool, kMostExperts> kept{};
  for (int64_t g = 0; g < params.groups; ++g)
    sums[static_cast<size_t>(g)] =
        params.groups_by_largest
            ? *std::max_element(s.choice.data() + g * size, s.choice.data() + (g + 1) * size)
            : two_largest(s.choice.data() + g * size, size);
  for (int64_t i = 0; i < params.top_k_groups; ++i)
    take_largest(sums.data(), params.groups, kept.data());
  for (int64_t e = 0; e < experts; ++e) taken[e] = !kept[static_cast<size_t>(e / size)];
}

struct SparseChoice {
  int32_t expert = 0;
  float weight = 0;
};

// The largest logit that is not taken, which is then, and its share among those
// near it.
SparseChoice sparse_choice(const float* logits, int64_t experts, float jitter, bool* taken) {
  int64_t best = -1;
  for (int64_t e = 0; e < experts; ++e)
    if (!taken[e] && (best < 0 || logits[e] > logits[best])) best = e;
  const float largest = logits[best];
  float total = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const float by = std::max(std::abs(logits[e]), largest);
    if (!taken[e] && !((largest - logits[e]) / by > 2 * jitter))
      total += std::exp(logits[e] - largest);
  }
  taken[best] = true;
  return {static_cast<int32_t>(best), 1 / total};
}

// Each choice, by rising ids.
void mix_sparsely(const float* logits, int64_t experts, const RouterParams& params, int32_t* chosen,
                  float* weights) {
  std::array<bool, kMostExperts> taken{};
  std::array<SparseChoice, kMostExperts> choices;
  const auto end = choices.begin() + params.top_k;
  for (auto at = choices.begin(); at != end; ++at)
    *at = sparse_choice(logits, experts, params.jitter, taken.data());
  std::sort(choices.begin(), end,
            [](const SparseChoice& a, const SparseChoice& b) { return a.expert < b.expert; });
  for (auto at = choices.begin(); at != end; ++at) {
    *chosen++ = at->expert;
    *weights++ = at->weight * params.factor;
  }
}

// The experts of a row's token, as a table has them. What is none's number is the nearest one's;
// one that is there already stands for the next that is not.
void look_up(const RouterParams& params, int64_t row, int64_t experts, int32_t* out) {
  const float* of_token = params.table + params.ids[static_cast<size_t>(row)] * params.top_k;
  const auto last = static_cast<float>(experts - 1);
  for (int64_t i = 0; i < params.top_k; ++i) {
    out[i] = static_cast<int32_t>(of_token[i] >= 0 ? std::min(of_token[i], last) : 0);
    while (std::find(out, out + i, out[i]) != out + i)
      out[i] = static_cast<int32_t>((out[i] + 1) % experts);
  }
}

}  // namespace

void CpuKernels::route(Tensor logits, const RouterParams& params, const ExpertChoices& out) const {
  check_route(logits, params, out);
  for_rows(logits, [&](int64_t r) {
    int32_t* experts = out.experts + r * params.top_k;
    float* weights = out.weights + r * params.top_k;
    if (params.score == RouterScore::sparse_mixer)
      return mix_sparsely(logits.row<float>(r), logits.cols, params, experts, weights);
    Scores s;
    std::array<bool, kMostExperts> taken{};
    score(logits.row<float>(r), logits.cols, params, s);
    if (params.groups > 1) drop_groups(s, logits.cols, params, taken.data());
    if (params.table != nullptr) look_up(params, r, logits.cols, experts);
    for (int64_t i = 0; i < params.top_k && params.table == nullptr; ++i)
      experts[i] = static_cast<int32_t>(take_largest(s.choice.data(), logits.cols, taken.data()));
    std::sort(experts, experts + params.top_k);
    float sum = 0;
    for (int64_t i = 0; i < params.top_k; ++i) sum += s.counts[static_cast<size_t>(experts[i])];
    for (int64_t i = 0; i < params.top_k; ++i) {
      const float count = s.counts[static_cast<size_t>(experts[i])];
      weights[i] = (params.normalized ? count / (sum + params.added) : count) * params.factor;
      if (params.factors != nullptr) weights[i] *= params.factors[experts[i]];
    }
  });
}

}  // namespace sluice
