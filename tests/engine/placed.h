// Models as tests place and load them, also in less memory than they take.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/engine/loaded_model.h"
#include "src/memory/system.h"

namespace sluice::test {

using ShapeOf = std::function<RunShape(const Planner&)>;

struct PlacedModel {
  std::unique_ptr<Planner> planner;
  std::shared_ptr<const Placed> placed;
  const MemoryPlan& plan() const { return placed->memory; }
};

// A loaded model with its own planner.
struct Ready {
  explicit Ready(PlacedModel placed)
      : own(std::move(placed.planner)), planner(*own), model(planner, std::move(placed.placed)) {}
  Ready(const ModelOptions& options, const ShapeOf& shape)
      : own(std::make_unique<Planner>(options)),
        planner(*own),
        model(planner, planner.place(shape(planner))) {}

  std::unique_ptr<Planner> own;
  Planner& planner;
  LoadedModel model;
};

inline std::string row_bytes(Tensor row) {
  return {reinterpret_cast<const char*>(row.row<float>(0)),
          static_cast<size_t>(row.cols) * sizeof(float)};
}

// Logits of the prompt's end and of a step with each token of `next`, as bytes. Calls before(i)
// ahead of step i.
inline std::string logits_bytes(
    Runner& runner, std::span<const int32_t> prompt, std::span<const int32_t> next = {},
    const std::function<void(size_t)>& before = [](size_t) {}) {
  Sequence sequence = runner.new_sequence();
  std::string bytes = row_bytes(runner.logits(runner.prefill(sequence, prompt, {})));
  for (size_t i = 0; i < next.size(); ++i) {
    before(i);
    const auto length = static_cast<int64_t>(prompt.size() + i + 1);
    bytes += row_bytes(runner.logits(runner.step(sequence, next.subspan(i, 1), length)));
  }
  return bytes;
}

// Bytes beside what the process holds: the least that works, and the least with which nothing is
// streamed. The same where nothing ever is.
struct Needs {
  uint64_t smallest = 0;
  uint64_t resident = 0;
  // Between them, so that something is streamed.
  uint64_t at(double share) const {
    return smallest + static_cast<uint64_t>(share * static_cast<double>(resident - smallest));
  }
};

inline uint64_t least_room(const ModelOptions& options, const ShapeOf& shape) {
  Planner planner(options);
  const MemoryPlan smallest = planner.smallest(shape(planner));
  return smallest.needed() - smallest.runtime;
}

inline Needs needs(const ModelOptions& options, const ShapeOf& shape) {
  constexpr uint64_t kStep = 64 * KiB;
  Planner planner(options);
  const MemoryPlan smallest = planner.smallest(shape(planner));
  Needs needs{smallest.needed() - smallest.runtime, planner.predict(shape(planner)).needed()};
  needs.resident -= smallest.runtime;
  for (uint64_t streams = needs.smallest; needs.resident - streams > kStep;) {
    const uint64_t middle = (streams + needs.resident) / 2;
    const MemoryPlan plan =
        planner.plan_within(shape(planner), smallest.runtime + middle, options.quantize);
    (plan.streams() ? streams : needs.resident) = middle;
  }
  if (!smallest.streams()) needs.smallest = needs.resident;
  return needs;
}

// Places a model with `room` beside the process's own memory. That memory changes from one planner
// to the next, most of all under sanitizers: if too little is left, or more than was asked for, the
// next attempt has just the difference more or less. Where that does not settle, what an earlier
// attempt lacked may be too much for the last ones.
inline PlacedModel placed(ModelOptions options, uint64_t room, const ShapeOf& shape) {
  constexpr uint64_t kStep = 64 * KiB;
  constexpr int kAttempts = 40;
  uint64_t more = 0, less = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    malloc_trim(0);  // a planner gives back what the one before has freed, and then it is room
    options.memory = std::to_string(process_rss() + room + more - std::min(room + more, less));
    PlacedModel model{std::make_unique<Planner>(options), nullptr};
    const uint64_t budget = model.planner->machine().budget();
    try {
      model.placed = model.planner->place(shape(*model.planner));
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::no_fit) throw;
      const uint64_t needed = model.planner->smallest(shape(*model.planner)).needed();
      more += needed - std::min(needed, budget);
      continue;
    }
    const uint64_t beside = budget - model.plan().runtime;
    const uint64_t most = room + kStep + (attempt < kAttempts / 2 ? 0 : more);
    if (beside <= most) return model;
    less += beside - room;
  }
  throw std::runtime_error("no budget is enough");
}

// Rules of --place that read every second matrix of the model from disk in each pass, and take the
// others from host memory.
inline std::string half_on_disk(const ModelOptions& options) {
  Planner planner(options);
  std::string rules = "*=host";
  int64_t matrices = 0;
  planner.checkpoint().model().root->each_param([&](const Param& p) {
    if (!p.pieces.front().vector && ++matrices % 2 == 0) rules += "," + p.path + "=disk";
  });
  return rules;
}

}  // namespace sluice::test
