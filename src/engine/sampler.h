// From logits to the next token. Deterministic: the same logits, parameters and random state give
// the same token.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace sluice {

struct SamplingParams {
  double temperature = 0;  // 0: greedy
  int64_t top_k = 0;       // 0: off
  double top_p = 1;        // keep the fewest tokens whose probabilities reach it
  double min_p = 0;  // keep tokens with at least this share of the likeliest one's probability
  uint64_t seed = 0;
};

// Throws Error(usage) that names the option whose value is out of range.
void check_sampling(const SamplingParams& params);

class Sampler {
 public:
  explicit Sampler(const SamplingParams& params);
  // Throws Error(runtime) when the logits hold a NaN or nothing finite.
  int32_t sample(std::span<const float> logits);

 private:
  struct Candidate {
    float logit;
    int32_t id;
    double weight;  // its probability over the likeliest one's
  };
  double total_weight() const;
  void keep_top_p();

  SamplingParams params_;
  std::mt19937_64 random_;
  std::vector<Candidate> candidates_;
};

// The id of the largest logit; the lowest id among equals.
int32_t argmax(std::span<const float> logits);

// Natural logarithm of the probability of `id`.
double log_probability(std::span<const float> logits, int32_t id);

}  // namespace sluice
