// The state of one continuation in its grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/engine/logits_processors.h"
#include "src/grammar/grammars.h"
#include "src/grammar/token_masks.h"

namespace sluice {

class Constraint {
 public:
  // `ends`: the tokens that end the sequence. Error(refused) for a grammar that is too ambiguous to
  // begin.
  Constraint(std::shared_ptr<const grammar::TokenGrammar> grammar, std::vector<int32_t> ends);

  // Returns the tokens that may come next; valid until the masks are used again. SamplingError for
  // a grammar that has become too ambiguous, as below.
  TokenMask mask(grammar::TokenMasks& masks) const;
  // The next token, which mask() allows.
  void accept(int32_t id);
  // Returns how many of these tokens, one after the other, the grammar allows.
  size_t allowed(std::span<const int32_t> ids) const;
  // The text matches, nothing can follow, and no token would say so.
  bool complete() const { return ends_.empty() && state_.only_ends(); }

 private:
  grammar::State after(const grammar::State& state, int32_t id, bool first) const;
  bool ends(int32_t id) const;

  std::shared_ptr<const grammar::TokenGrammar> grammar_;
  std::vector<int32_t> ends_;
  grammar::State state_;
  bool first_ = true;  // no token has come
};

}  // namespace sluice
