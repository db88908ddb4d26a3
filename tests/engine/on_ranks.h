// Models on several ranks, each of which is a thread with a planner of its own.
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/engine/engine.h"
#include "src/engine/ranks.h"
#include "tests/engine/how.h"
#include "tests/support/thread_group.h"

namespace sluice::test {

// A rank's planner, and its model once that is loaded.
struct OnRank {
  explicit OnRank(ModelOptions options) : planner(std::move(options)) {}
  LoadedModel& load(const RunShape& shape) { return model.emplace(planner, planner.place(shape)); }

  Planner planner;
  std::optional<LoadedModel> model;
};

// Does `lead` as rank 0, which the others follow, and at last `after` with each rank and its
// number, one at a time. Returns the error that all end with.
template <class Lead, class After>
std::optional<Error> try_ranks(const std::filesystem::path& model, int size, const How& how,
                               const Lead& lead, const After& after) {
  Meeting meeting(size);
  std::mutex mutex;
  std::optional<Error> fault;
  {
    std::vector<std::jthread> ranks;
    for (int r = 0; r < size; ++r) {
      ranks.emplace_back([&, r] {
        try {
          ModelOptions options = options_for(model, how);
          options.ranks = std::make_shared<ThreadGroup>(Rank{r, size}, meeting);
          if (how.link) options.devices = how.link(*options.ranks, options.backend->device());
          OnRank rank(std::move(options));
          if (r > 0) follow(rank.planner, rank.model, {});
          if (r == 0) lead(rank);
          std::lock_guard lock(mutex);
          after(rank, r);
        } catch (const Error& e) {
          std::lock_guard lock(mutex);
          if (r == 0) fault = e;
        }
      });
    }
  }
  return fault;
}

template <class Lead>
std::optional<Error> try_ranks(const std::filesystem::path& model, int size, const How& how,
                               const Lead& lead) {
  return try_ranks(model, size, how, lead, [](OnRank&, int) {});
}

// The same, of ranks that end without an error.
template <class Lead>
void on_ranks(const std::filesystem::path& model, int size, const How& how, const Lead& lead) {
  const std::optional<Error> fault = try_ranks(model, size, how, lead);
  EXPECT_FALSE(fault) << fault->what();
}

// Loads what a prompt and the tokens after it need, on all ranks, and computes them.
inline Outcome lead_prompt(OnRank& rank, const std::vector<int32_t>& prompt, int64_t more,
                           int64_t chunk) {
  const int64_t length = std::ssize(prompt);
  LoadedModel& model = rank.load(rank.planner.run_shape(length + more, length, length));
  return run_prompt(model, prompt, more, chunk);
}

inline Outcome run_on_ranks(const std::filesystem::path& model, const std::vector<int32_t>& prompt,
                            int64_t more, int size, const How& how) {
  Outcome outcome;
  on_ranks(model, size, how,
           [&](OnRank& rank) { outcome = lead_prompt(rank, prompt, more, how.chunk); });
  return outcome;
}

// Runs six requests of different lengths, with draft tokens, one with two choices that are sampled,
// and returns the tokens of each.
inline std::vector<std::vector<int32_t>> run_requests(Engine& engine) {
  for (int i = 0; i < 6; ++i) {
    Request request;
    for (int t = 0; t < 10 + 8 * i; ++t) request.prompt.push_back(3 + (t * (i % 3 + 1)) % 50);
    request.max_tokens = 12;
    request.n = i == 2 ? 2 : 1;
    request.lookup = true;
    request.sampling.temperature = i == 2 ? 1 : 0;
    request.sampling.seed = 7;
    engine.add(std::move(request));
  }
  std::vector<std::vector<int32_t>> ids;
  std::vector<OutputId> ended;
  while (!engine.idle())
    for (const Output& out : engine.step({}))
      if (out.finished) ended.push_back(out.id);
  std::ranges::sort(ended);
  for (OutputId id : ended) ids.push_back(engine.take(id).ids);
  return ids;
}

}  // namespace sluice::test
