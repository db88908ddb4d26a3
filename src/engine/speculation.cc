#include "src/engine/speculation.h"

#include <algorithm>
#include <cmath>

#include "src/base/error.h"
#include "src/base/log.h"

namespace sluice {
namespace {

// Shorter ends are found everywhere and say little.
constexpr size_t kShortest = 2;
constexpr size_t kLongest = 4;

// The prior share of right draft tokens of a source, and its weight [tokens].
constexpr double kBelief = 0.7;
constexpr double kBeliefWeight = 1;
constexpr double kForget = 0.8;
constexpr double kFresh = 0.3;  // share of the newest measurement in an average
constexpr double kLeastVariance = 0.1;
constexpr double kLeastGain = 1.02;    // below it draft tokens are not worth their risk
constexpr int64_t kLongestPause = 64;  // passes

double average(double so_far, double newest) {
  return so_far == 0 ? newest : so_far + kFresh * (newest - so_far);
}

}  // namespace

std::vector<int32_t> lookup_draft(std::span<const int32_t> ids, int64_t most) {
  for (size_t n = kLongest; n >= kShortest && most > 0; --n) {
    if (ids.size() <= n) continue;
    auto end = ids.last(n);
    // The latest place before the end itself.
    auto found = std::find_end(ids.begin(), ids.end() - 1, end.begin(), end.end());
    if (found == ids.end() - 1) continue;
    auto next = found + static_cast<std::ptrdiff_t>(n);
    return {next, next + std::min<std::ptrdiff_t>(most, ids.end() - next)};
  }
  return {};
}

RunShape DraftModel::shape(const Planner& draft, int64_t tokens, int64_t prompt_tokens) {
  return draft.run_shape(tokens + kSpeculativeRows, std::max(prompt_tokens, kSpeculativeRows), 1);
}

DraftModel::DraftModel(Runner& runner, int64_t max_length)
    : runner_(runner), max_length_(max_length), sequence_(runner.new_sequence()) {}

std::vector<int32_t> DraftModel::propose(std::span<const int32_t> ids, int64_t most,
                                         std::stop_token stop) {
  // A window has planned blocks for as many further tokens as a step may add.
  most = std::min({most, max_length_ - std::ssize(ids), runner_.max_rows()});
  if (most <= 0 || has_failed_) return {};
  try {
    return generate(ids, most, stop);
  } catch (const Error& e) {
    if (stop.stop_requested()) throw;
    log::warning("the draft model is no longer used: {}", e.what());
    has_failed_ = true;
    return {};
  }
}

std::vector<int32_t> DraftModel::generate(std::span<const int32_t> ids, int64_t most,
                                          std::stop_token stop) {
  // The last token is computed anew in any case: its logits give the first draft token.
  auto known = std::ranges::mismatch(seen_, ids.first(ids.size() - 1)).in1 - seen_.begin();
  seen_.assign(ids.begin(), ids.end());
  sequence_.truncate(known);  // it may go back further
  const auto first = static_cast<size_t>(sequence_.length());
  Tensor hidden = runner_.prefill(sequence_, ids.subspan(first), stop);
  std::vector<int32_t> proposed;
  while (true) {
    runner_.compute_logits(hidden);
    proposed.push_back(runner_.likeliest(0).id);
    if (std::ssize(proposed) == most) return proposed;
    seen_.push_back(proposed.back());
    hidden = runner_.draft(sequence_, std::span(seen_).last(1));
  }
}

void PassCost::learn(int64_t rows, double seconds) {
  double share = known() ? kFresh : 1;
  double more_rows = static_cast<double>(rows) - rows_;
  double more_seconds = seconds - seconds_;
  rows_ += share * more_rows;
  seconds_ += share * more_seconds;
  variance_ = (1 - share) * (variance_ + share * more_rows * more_rows);
  covariance_ = (1 - share) * (covariance_ + share * more_rows * more_seconds);
  // Passes of one size say nothing; neither rows nor what they share cost less than nothing.
  if (variance_ > kLeastVariance) row_ = std::clamp(covariance_ / variance_, 0.0, seconds_ / rows_);
}

double DraftLength::probability() const {
  return (right_ + kBelief * kBeliefWeight) / (tried_ + kBeliefWeight);
}

int64_t DraftLength::choose(int64_t most, const PassCost& cost, int64_t sequences) {
  if (most <= 0 || !cost.known()) return 0;
  double p = probability();
  int64_t best = 0;
  double own = cost.of(sequences) / static_cast<double>(sequences);
  double best_rate = kLeastGain / own;
  double tokens = 1;
  for (int64_t n = 1; n <= most; ++n) {
    tokens += std::pow(p, static_cast<double>(n));
    double rate = tokens / (own + static_cast<double>(n) * (cost.row() + seconds_each_));
    if (rate > best_rate) {
      best_rate = rate;
      best = n;
    }
  }
  if (best > 0) return best;
  if (resting_ > 0) {
    --resting_;
    return 0;
  }
  resting_ = pause_;
  return 1;
}

void DraftLength::learn(int64_t drafted, int64_t accepted, double seconds) {
  if (drafted == 0) return;
  right_ = kForget * right_ + static_cast<double>(accepted);
  tried_ = kForget * tried_ + static_cast<double>(std::min(accepted + 1, drafted));
  seconds_each_ = average(seconds_each_, seconds / static_cast<double>(drafted));
  pause_ = accepted > 0 ? 1 : std::min(2 * pause_, kLongestPause);
}

}  // namespace sluice
