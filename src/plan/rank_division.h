// The ways in which several ranks, each a host or a socket with memory of its own, can divide a
// model, and how long each takes for a token: from the ranks' memory, and the speed of memory,
// disk and links. Arithmetic only.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "src/plan/rates.h"

namespace sluice {

// A way from any rank to any other.
struct RankLink {
  double bytes_per_second = 0;
  double latency = 0;  // of a message [s]
};

// The work that ranks divide.
struct RankWork {
  uint64_t weights = 0;    // bytes in memory, of which a token meets all
  uint64_t kv_cache = 0;   // divided as weights are
  uint64_t whole = 0;      // bytes that each rank needs beside its part
  int64_t layers = 0;      // with two sums each, where ranks divide them
  uint64_t row_bytes = 0;  // of what a layer leaves to the next for a token
  uint64_t logits_bytes = 0;
  // Returns why so many ranks cannot divide each layer; empty: they can.
  std::function<std::string(int ranks)> refusal = [](int) { return std::string(); };
};

struct RankDivision {
  int tensor_parallel_size = 1;
  int pipeline_parallel_size = 1;
  std::string refusal = {};  // why it cannot be; empty: it can
  // Seconds of a token of one sequence.
  double memory = 0;
  double disk = 0;  // where the memory is too small for the weights
  double link = 0;
  double seconds() const { return memory + disk + link; }
};

// Returns all divisions of a model among ranks with these memories [bytes]: the fastest first, and
// those that cannot be last. `rates`: of each rank's memory and disk.
std::vector<RankDivision> rank_divisions(const RankWork& work, std::span<const uint64_t> memories,
                                         const RankLink& link, const Rates& rates);
// Says in a sentence why the first of several is the fastest.
std::string why_fastest(std::span<const RankDivision> divisions);

}  // namespace sluice
