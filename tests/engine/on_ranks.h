// Models on several ranks, each of which is a thread with a session of its own.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "src/base/error.h"
#include "tests/engine/how.h"
#include "tests/support/thread_group.h"

namespace sluice::test {

// Does `lead` with the session of rank 0, which the others follow, and at last `after` with the
// session of each rank and its number, one at a time. Returns the error that all end with.
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
          SessionOptions options = options_for(model, how);
          options.ranks = std::make_shared<ThreadGroup>(Rank{r, size}, meeting);
          Session session(std::move(options));
          if (r > 0) session.follow({});
          if (r == 0) lead(session);
          std::lock_guard lock(mutex);
          after(session, r);
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
  return try_ranks(model, size, how, lead, [](Session&, int) {});
}

// The same, of ranks that end without an error.
template <class Lead>
void on_ranks(const std::filesystem::path& model, int size, const How& how, const Lead& lead) {
  const std::optional<Error> fault = try_ranks(model, size, how, lead);
  EXPECT_FALSE(fault) << fault->what();
}

// Loads what a prompt and the tokens after it need, on all ranks, and computes them.
inline Outcome lead_prompt(Session& session, const std::vector<int32_t>& prompt, int64_t more,
                           int64_t chunk) {
  const int64_t length = std::ssize(prompt);
  session.place(session.run_shape(length + more, length, length));
  LoadProgress progress;
  session.load(progress, {});
  return run_prompt(session, prompt, more, chunk);
}

inline Outcome run_on_ranks(const std::filesystem::path& model, const std::vector<int32_t>& prompt,
                            int64_t more, int size, const How& how) {
  Outcome outcome;
  on_ranks(model, size, how,
           [&](Session& session) { outcome = lead_prompt(session, prompt, more, how.chunk); });
  return outcome;
}

}  // namespace sluice::test
