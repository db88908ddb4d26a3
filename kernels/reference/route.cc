#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"

namespace sluice {
namespace {

std::vector<float> scores_of(const float* logits, int64_t experts, RouterScore kind) {
  std::vector<float> scores(logits, logits + experts);
  if (kind == RouterScore::sigmoid) {
    for (float& s : scores) s = 1 / (1 + std::exp(-s));
    return scores;
  }
  if (kind == RouterScore::sqrt_softplus) {
    for (float& s : scores) s = std::sqrt(s > 30 ? s : std::log1p(std::exp(s)));
    return scores;
  }
  const float largest = *std::ranges::max_element(scores);
  float total = 0;
  for (float& s : scores) total += s = std::exp(s - largest);
  for (float& s : scores) s /= total;
  return scores;
}

// Leaves what is not to be chosen from at minus infinity.
void keep_groups(std::vector<float>& choice, const RouterParams& params) {
  const int64_t size = std::ssize(choice) / params.groups;
  std::vector<float> sums;
  for (int64_t g = 0; g < params.groups; ++g) {
    std::vector<float> group(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    std::ranges::sort(group, std::greater{});
    sums.push_back(group[0] + (size > 1 && !params.groups_by_largest ? group[1] : 0));
  }
  std::vector<int64_t> order(sums.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater{},
                           [&](int64_t g) { return sums[static_cast<size_t>(g)]; });
  for (int64_t i = params.top_k_groups; i < params.groups; ++i)
    std::fill_n(choice.begin() + order[static_cast<size_t>(i)] * size, size, -INFINITY);
}

// The choices of a sparse mixer, by rising ids.
std::map<int32_t, float> mixed(std::vector<float> left, const RouterParams& params) {
  std::map<int32_t, float> chosen;
  const std::vector<float> logits = left;
  for (int64_t i = 0; i < params.top_k; ++i) {
    const auto best = std::ranges::max_element(left);
    const double largest = *best;
    double total = 0;
    for (size_t e = 0; e < left.size(); ++e) {
      const double by = std::max<double>(std::abs(logits[e]), largest);
      if ((largest - logits[e]) / by <= 2 * params.jitter) total += std::exp(left[e] - largest);
    }
    chosen[static_cast<int32_t>(best - left.begin())] = static_cast<float>(1 / total);
    *best = -INFINITY;
  }
  return chosen;
}

}  // namespace

void ReferenceKernels::route(Tensor logits, const RouterParams& params,
                             const ExpertChoices& out) const {
  check_route(logits, params, out);
  for (int64_t r = 0; r < logits.rows; ++r) {
    if (params.score == RouterScore::sparse_mixer) {
      const float* row = logits.row<float>(r);
      int64_t at = r * params.top_k;
      for (const auto& [expert, weight] : mixed({row, row + logits.cols}, params)) {
        out.experts[at] = expert;
        out.weights[at++] = weight * params.factor;
      }
      continue;
    }
    const std::vector<float> scores = scores_of(logits.row<float>(r), logits.cols, params.score);
    std::vector<float> choice = scores;
    if (params.chooses_logits)
      choice.assign(logits.row<float>(r), logits.row<float>(r) + logits.cols);
    for (size_t e = 0; params.bias != nullptr && e < choice.size(); ++e)
      choice[e] += params.bias[e];
    if (params.groups > 1) keep_groups(choice, params);
    std::vector<int32_t> order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, std::greater{},
                             [&](int32_t e) { return choice[static_cast<size_t>(e)]; });
    order.resize(static_cast<size_t>(params.top_k));
    const float* of_token = params.table;
    if (of_token != nullptr) of_token += params.ids[static_cast<size_t>(r)] * params.top_k;
    for (size_t i = 0; i < order.size() && of_token != nullptr; ++i) {
      order[i] =
          static_cast<int32_t>(std::clamp(of_token[i], 0.0F, static_cast<float>(logits.cols - 1)));
      const auto end = order.begin() + static_cast<long>(i);
      while (std::find(order.begin(), end, order[i]) != end)
        order[i] = static_cast<int32_t>((order[i] + 1) % logits.cols);
    }
    std::ranges::sort(order);
    float sum = 0;
    for (int32_t e : order) sum += scores[static_cast<size_t>(e)];
    for (int64_t i = 0; i < params.top_k; ++i) {
      const int32_t e = order[static_cast<size_t>(i)];
      const float score = scores[static_cast<size_t>(e)];
      out.experts[r * params.top_k + i] = e;
      out.weights[r * params.top_k + i] =
          (params.normalized ? score / (sum + params.added) : score) * params.factor *
          (params.factors != nullptr ? params.factors[e] : 1);
    }
  }
}

}  // namespace sluice
