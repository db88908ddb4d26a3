#include "src/engine/constraint.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/engine/sampler.h"

namespace sluice {
namespace {

// Limits the parse steps that the bytes of one token may take.
constexpr uint64_t kMostFrames = 5'000'000;

}  // namespace

Constraint::Constraint(std::shared_ptr<const grammar::TokenGrammar> grammar,
                       std::vector<int32_t> ends)
    : grammar_(std::move(grammar)), ends_(std::move(ends)) {
  grammar::StepBudget budget(kMostFrames);
  state_ = grammar::State::start(*grammar_->grammar, budget);
}

bool Constraint::ends(int32_t id) const { return std::ranges::find(ends_, id) != ends_.end(); }

TokenMask Constraint::mask(grammar::TokenMasks& masks) const {
  try {
    return {.bits = masks.find(grammar_->grammar, state_, first_), .may_end = state_.can_end()};
  } catch (const Error& e) {
    throw SamplingError(e.kind(), e.what());
  }
}

grammar::State Constraint::after(const grammar::State& state, int32_t id, bool first) const {
  grammar::StepBudget budget(kMostFrames);
  try {
    return state.next(*grammar_->grammar, grammar_->tokens->text(id, first), budget);
  } catch (const Error& e) {
    throw SamplingError(e.kind(), e.what());
  }
}

void Constraint::accept(int32_t id) {
  if (ends(id)) return;
  state_ = after(state_, id, first_);
  first_ = false;
  check(!state_.dead(), "a token that its grammar does not allow");
}

// A fault of the grammar is found again where its tokens are sampled.
size_t Constraint::allowed(std::span<const int32_t> ids) const try {
  grammar::State state = state_;
  bool first = first_;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ends(ids[i])) return state.can_end() ? i + 1 : i;
    if (grammar_->tokens->text(ids[i], first).empty()) return i;
    state = after(state, ids[i], first);
    if (state.dead()) return i;
    first = false;
  }
  return ids.size();
} catch (const SamplingError&) {
  return 0;
}

}  // namespace sluice
