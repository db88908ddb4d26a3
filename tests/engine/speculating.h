// A model and a draft model beside it, loaded and ready to run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "src/engine/session.h"
#include "src/engine/speculation.h"

namespace sluice::test {

struct Speculating {
  // Makes room for prompts of `prompt` tokens and `tokens` generated ones. `draft`: options of the
  // draft model; null: there is none.
  Speculating(const SessionOptions& options, const SessionOptions* draft, int64_t prompt,
              int64_t tokens)
      : session(options) {
    LoadProgress progress;
    if (draft != nullptr) beside.emplace(*draft, session);
    RunShape shape =
        session.run_shape(prompt + tokens, std::max(prompt, kSpeculativeRows), kSpeculativeRows);
    if (draft != nullptr) {
      shape =
          beside->place_beside(session, DraftModel::shape(*beside, prompt + tokens, prompt), shape);
    }
    session.place(shape);
    if (draft != nullptr) {
      beside->load(progress, {});
      model.emplace(beside->runner(), beside->max_model_len());
    }
    session.load(progress, {});
  }
  DraftModel* draft() { return model ? &*model : nullptr; }

  Session session;
  std::optional<Session> beside;
  std::optional<DraftModel> model;
};

}  // namespace sluice::test
