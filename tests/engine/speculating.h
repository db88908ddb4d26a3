// A model and a draft model beside it, loaded and ready to run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "src/engine/loaded_model.h"
#include "src/engine/speculation.h"

namespace sluice::test {

struct Speculating {
  // Makes room for prompts of `prompt` tokens and `tokens` generated ones. `draft`: options of the
  // draft model; null: there is none.
  Speculating(const ModelOptions& options, const ModelOptions* draft, int64_t prompt,
              int64_t tokens)
      : planner(options) {
    RunShape shape =
        planner.run_shape(prompt + tokens, std::max(prompt, kSpeculativeRows), kSpeculativeRows);
    std::shared_ptr<const Placed> draft_placed;
    if (draft != nullptr) {
      beside.emplace(*draft, planner);
      const RunShape own = DraftModel::shape(*beside, prompt + tokens, prompt);
      draft_placed = beside->place_beside(planner, own, shape);
    }
    const std::shared_ptr<const Placed> placed = planner.place(shape);
    if (draft != nullptr) {
      draft_loaded.emplace(*beside, draft_placed);
      model.emplace(draft_loaded->runner(), beside->max_model_len());
    }
    loaded.emplace(planner, placed);
  }
  DraftModel* draft() { return model ? &*model : nullptr; }

  Planner planner;
  std::optional<Planner> beside;  // the draft model's
  std::optional<LoadedModel> draft_loaded;
  std::optional<LoadedModel> loaded;
  std::optional<DraftModel> model;
};

}  // namespace sluice::test
