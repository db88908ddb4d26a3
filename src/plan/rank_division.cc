#include "src/plan/rank_division.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace sluice {
namespace {

// Ranks of a stage have equal parts of it, so that the one with the least memory counts.
std::vector<uint64_t> memories_of_stages(std::span<const uint64_t> memories, int ranks_a_stage) {
  std::vector<uint64_t> stages;
  for (size_t first = 0; first < memories.size(); first += static_cast<size_t>(ranks_a_stage))
    stages.push_back(std::ranges::min(memories.subspan(first, static_cast<size_t>(ranks_a_stage))));
  return stages;
}

// The time of messages: a rank sends its part of each sum to all others of its stage; stages hand
// on a row, and the last one the logits.
double link_seconds(const RankDivision& d, const RankWork& work, const RankLink& link) {
  const auto message = [&](uint64_t bytes) {
    return link.latency + static_cast<double>(bytes) / link.bytes_per_second;
  };
  const auto row = static_cast<double>(work.row_bytes), others = d.tensor_parallel_size - 1.0;
  const auto sums = static_cast<double>(2 * work.layers + 1);
  double seconds = 0;
  if (others > 0) {
    seconds += sums * (link.latency + others * row / link.bytes_per_second);
    seconds += message(work.logits_bytes / static_cast<uint64_t>(d.tensor_parallel_size));
  }
  if (d.pipeline_parallel_size > 1)
    seconds +=
        (d.pipeline_parallel_size - 1) * message(work.row_bytes) + message(work.logits_bytes);
  return seconds;
}

void find_seconds(RankDivision& d, const RankWork& work, std::span<const uint64_t> memories,
                  const RankLink& link, const Rates& rates) {
  const std::vector<uint64_t> stages = memories_of_stages(memories, d.tensor_parallel_size);
  const auto all = static_cast<double>(std::accumulate(stages.begin(), stages.end(), uint64_t{0}));
  for (const uint64_t memory : stages) {  // one after another
    const double part = static_cast<double>(memory) / all / d.tensor_parallel_size;
    const double weights = part * static_cast<double>(work.weights);
    const double needed =
        weights + part * static_cast<double>(work.kv_cache) + static_cast<double>(work.whole);
    const double streamed = std::clamp(needed - static_cast<double>(memory), 0.0, weights);
    d.memory += weights / rates.memory.bytes_per_second;
    d.disk += streamed / rates.sweep.bytes_per_second;
  }
  d.link = link_seconds(d, work, link);
}

std::string size_text(const RankDivision& d) {
  return fmt::format("{} x {}", d.tensor_parallel_size, d.pipeline_parallel_size);
}

}  // namespace

std::vector<RankDivision> rank_divisions(const RankWork& work, std::span<const uint64_t> memories,
                                         const RankLink& link, const Rates& rates) {
  const int ranks = static_cast<int>(memories.size());
  std::vector<RankDivision> divisions;
  for (int tensor = 1; tensor <= ranks; ++tensor) {
    if (ranks % tensor != 0) continue;
    RankDivision d{.tensor_parallel_size = tensor, .pipeline_parallel_size = ranks / tensor};
    if (d.pipeline_parallel_size > work.layers) {
      d.refusal = fmt::format("{} layers are too few", work.layers);
    } else if (std::ranges::min(memories) <= work.whole) {
      d.refusal = "a rank has no memory for a part of the weights";
    } else {
      d.refusal = work.refusal(tensor);
    }
    if (d.refusal.empty()) find_seconds(d, work, memories, link, rates);
    divisions.push_back(std::move(d));
  }
  std::ranges::stable_sort(divisions, [](const RankDivision& a, const RankDivision& b) {
    if (a.refusal.empty() != b.refusal.empty()) return a.refusal.empty();
    return a.seconds() < b.seconds();
  });
  return divisions;
}

std::string why_fastest(std::span<const RankDivision> divisions) {
  const RankDivision& best = divisions.front();
  if (!best.refusal.empty()) return "the ranks cannot divide the model: " + best.refusal;
  if (divisions.size() == 1 || !divisions[1].refusal.empty())
    return size_text(best) + " is the only division that is possible";
  const RankDivision& next = divisions[1];
  const double memory = next.memory - best.memory, disk = next.disk - best.disk,
               link = next.link - best.link;
  const double most = std::max({memory, disk, link});
  const char* what = most == disk   ? "the disk, as more of the weights is in memory"
                     : most == link ? "messages between ranks"
                                    : "the weights, as more ranks read them at once";
  return fmt::format("of each token it takes {:.1f} ms less for {} than {} does", 1e3 * most, what,
                     size_text(next));
}

}  // namespace sluice
