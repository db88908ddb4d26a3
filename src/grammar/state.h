// A text's state in a grammar: the set of all ways in which its bytes may have matched.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "src/grammar/grammar.h"

namespace sluice::grammar {

// Place where a region goes on when what it called has matched: at the node; or where `high` is not
// 0, at an Op::repeat, with up to so many more repetitions, and at least `low`.
struct Frame {
  uint32_t node = 0;
  uint32_t low = 0;
  uint32_t high = 0;
  bool repeats() const { return high > 0; }
  auto operator<=>(const Frame&) const = default;
};
// Limit of all stacks of a state [bytes of memory]; a text that needs more is too ambiguous.
inline constexpr size_t kMaxStateBytes = size_t{1} << 17;

// The outermost region first. The last frame is the node that takes the next byte; of a text that
// may end here there is none.
using Stack = std::vector<Frame>;

// Bounds what one step or mask may cost: Error(refused) beyond so many frames.
class StepBudget {
 public:
  explicit StepBudget(uint64_t frames) : left_(frames) {}
  void spend(uint64_t frames);

 private:
  uint64_t left_;
};

// Immutable; a copy shares its stacks. Belongs to a grammar, which each call names.
class State {
 public:
  State() : stacks_(nothing()) {}  // that no text leads to
  static State start(const Grammar& grammar, StepBudget& budget);

  // No byte can come, and the text cannot end.
  bool dead() const { return stacks_->empty(); }
  bool can_end() const { return !dead() && stacks_->front().empty(); }
  bool only_ends() const { return can_end() && stacks_->size() == 1; }

  State next(const Grammar& grammar, uint8_t byte, StepBudget& budget) const;
  State next(const Grammar& grammar, std::string_view bytes, StepBudget& budget) const;
  // A state that goes on alike for as long as at most `bytes` come: what is beyond in its counts is
  // left out, so that it stands for many.
  State within(uint32_t bytes) const;

  uint64_t bytes() const { return bytes_of(*stacks_); }  // of memory
  size_t hash() const;
  bool operator==(const State& other) const {
    return stacks_ == other.stacks_ || *stacks_ == *other.stacks_;
  }

 private:
  using Stacks = std::vector<Stack>;  // ascending, different: the empty one is the first
  explicit State(Stacks stacks);
  static const std::shared_ptr<const Stacks>& nothing();
  static uint64_t bytes_of(const Stacks& stacks);

  std::shared_ptr<const Stacks> stacks_;
};

struct StateHash {
  size_t operator()(const State& state) const { return state.hash(); }
};

}  // namespace sluice::grammar
