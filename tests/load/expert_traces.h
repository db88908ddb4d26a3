// Traces of a router's choices: synthetic ones and those of tools/router_traces.py, and a replay of
// them through a policy or Belady's.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "src/load/expert_policy.h"
#include "tests/support/random.h"

namespace sluice::test {

struct ExpertTrace {
  std::string name;
  uint32_t layers = 0, experts = 0;              // of a layer
  std::vector<std::vector<uint32_t>> uses = {};  // of step 0's layer 0, its layer 1, ...

  std::vector<uint32_t> layer_of() const {
    std::vector<uint32_t> all;
    for (uint32_t e = 0; e < layers * experts; ++e) all.push_back(e / experts);
    return all;
  }
};

struct TraceShape {
  double skew = 0;           // of Zipf's law: the expert of rank r weighs 1 / r^skew
  double skewed_layers = 1;  // share; the others are uniform
  int64_t drift = 0;         // steps until ranks are others; 0: never
  double repeats = 0;        // probability that a choice is one of the step before
  int64_t prompt_every = 0;  // steps from one that uses all experts to the next
};

inline ExpertTrace make_trace(std::string name, const TraceShape& shape, Random& random,
                              int64_t steps = 600) {
  ExpertTrace trace{std::move(name), 6, 32};
  constexpr size_t kUsed = 4;
  std::vector<std::vector<uint32_t>> ranks(trace.layers), last(trace.layers);
  for (int64_t step = 0; step < steps; ++step) {
    for (uint32_t l = 0; l < trace.layers; ++l) {
      if (step == 0 || (shape.drift > 0 && step % shape.drift == 0)) {
        ranks[l].resize(trace.experts);
        std::iota(ranks[l].begin(), ranks[l].end(), l * trace.experts);
        std::ranges::shuffle(ranks[l], random.engine());
      }
      const bool is_skewed = l < shape.skewed_layers * trace.layers;
      std::vector<double> weights;
      for (uint32_t r = 0; r < trace.experts; ++r)
        weights.push_back(std::pow(r + 1.0, is_skewed ? -shape.skew : 0));
      std::discrete_distribution<size_t> choice(weights.begin(), weights.end());
      std::set<uint32_t> chosen;
      const bool is_prompt = shape.prompt_every > 0 && step % shape.prompt_every == 0;
      if (is_prompt) chosen.insert(ranks[l].begin(), ranks[l].end());
      while (chosen.size() < kUsed) {
        const bool repeats = !last[l].empty() && random.uniform() < shape.repeats;
        const auto any = static_cast<size_t>(random.between(0, kUsed - 1));
        chosen.insert(repeats ? last[l][any] : ranks[l][choice(random.engine())]);
      }
      trace.uses.emplace_back(chosen.begin(), chosen.end());
      last[l].assign(chosen.begin(), chosen.end());
    }
  }
  return trace;
}

inline std::vector<ExpertTrace> synthetic_traces(Random& random) {
  return {make_trace("uniform", {}, random),
          make_trace("skewed", {.skew = 1}, random),
          make_trace("drifting", {.skew = 1.2, .drift = 100}, random),
          make_trace("half of the layers skewed", {.skew = 1.2, .skewed_layers = 0.5}, random),
          make_trace("repeating", {.skew = 0.5, .repeats = 0.5}, random),
          make_trace("with prompts", {.skew = 1, .prompt_every = 20}, random)};
}

// The traces of a file of tools/router_traces.py: a line for each step, for each layer a word of
// its experts, which are hexadecimal digits.
inline std::vector<ExpertTrace> recorded_traces(const std::filesystem::path& file) {
  constexpr uint32_t kExperts = 16;
  std::vector<ExpertTrace> traces;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# ")) {
      traces.push_back({.name = line.substr(2), .experts = kExperts});
      continue;
    }
    ExpertTrace& trace = traces.back();
    std::istringstream words(line);
    uint32_t layer = 0;
    for (std::string word; words >> word; ++layer) {
      std::vector<uint32_t>& uses = trace.uses.emplace_back();
      for (char digit : word)
        uses.push_back(layer * kExperts +
                       static_cast<uint32_t>(std::stoul(std::string(1, digit), nullptr, 16)));
    }
    trace.layers = layer;
  }
  return traces;
}

// Returns the share of uses that hit.
template <class Policy>
double hit_rate(const ExpertTrace& trace, Policy policy) {
  size_t hits = 0, all = 0;
  for (const auto& step : trace.uses) {
    std::vector<ExpertUse> uses;
    for (uint32_t e : step) uses.push_back({.expert = e});
    policy.use(uses);
    all += uses.size();
    hits += static_cast<size_t>(std::ranges::count(uses, true, &ExpertUse::is_hit));
  }
  return static_cast<double>(hits) / static_cast<double>(all);
}

// Belady's optimum, which knows the future, and may leave out what it reads.
inline double best_hit_rate(const ExpertTrace& trace, uint32_t slots) {
  std::vector<std::pair<size_t, uint32_t>> order;
  for (size_t i = 0; i < trace.uses.size(); ++i)
    for (uint32_t e : trace.uses[i]) order.emplace_back(i, e);
  std::vector<size_t> next(order.size(), order.size() + 1);
  std::map<uint32_t, size_t> seen;
  for (size_t i = order.size(); i-- > 0;) {
    if (auto at = seen.find(order[i].second); at != seen.end()) next[i] = at->second;
    seen[order[i].second] = i;
  }
  std::set<std::pair<size_t, uint32_t>> kept;  // by their next use
  std::map<uint32_t, size_t> next_of;
  size_t hits = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t e = order[i].second;
    if (auto at = next_of.find(e); at != next_of.end()) {
      ++hits;
      kept.erase({at->second, e});
      next_of.erase(at);
    }
    kept.insert({next[i], e});
    next_of[e] = next[i];
    if (kept.size() <= slots) continue;
    next_of.erase(kept.rbegin()->second);
    kept.erase(std::prev(kept.end()));
  }
  return static_cast<double>(hits) / static_cast<double>(order.size());
}

}  // namespace sluice::test
