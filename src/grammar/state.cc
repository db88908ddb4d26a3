#include "src/grammar/state.h"

#include <algorithm>
#include <span>
#include <unordered_set>
#include <utility>

#include "src/base/checksum.h"
#include "src/base/error.h"

namespace sluice::grammar {
namespace {

constexpr size_t kMostWays = size_t{1} << 14;  // on the way to one state
constexpr uint64_t kStackOverhead = sizeof(Stack) + 16;

size_t hash_of(const Stack& stack) { return checksum64(std::as_bytes(std::span(stack))); }

struct StackHash {
  size_t operator()(const Stack& stack) const { return hash_of(stack); }
};

uint32_t one_less(uint32_t count) { return count == 0 || count == kEndless ? count : count - 1; }

// Follows the nodes that take no byte, to all that do.
class Closure {
 public:
  Closure(const Grammar& grammar, StepBudget& budget) : g_(grammar), budget_(budget) {}

  // The text goes on at `node` within what is on the stack.
  void add(Stack stack, uint32_t node) {
    const size_t old = stack.size();
    open_.push_back({std::move(stack), node, old});
    while (!open_.empty()) {
      Way way = std::move(open_.back());
      open_.pop_back();
      follow(std::move(way));
    }
  }

  std::vector<Stack> take() {
    std::ranges::sort(found_);
    found_.erase(std::ranges::unique(found_).begin(), found_.end());
    uint64_t bytes = 0;
    for (const Stack& stack : found_) bytes += kStackOverhead + stack.size() * sizeof(Frame);
    if (bytes > kMaxStateBytes) too_many();
    return std::move(found_);
  }

 private:
  struct Way {
    Stack stack;
    uint32_t node = 0;
    size_t old = 0;  // frames that were there before the last byte, at the stack's bottom
  };

  [[noreturn]] static void too_many() {
    fail(ErrorKind::refused, "the grammar is too ambiguous: a text matches it in too many ways");
  }

  void follow(Way way) {
    for (;;) {
      budget_.spend(way.stack.size() + 1);
      const Node& node = g_.nodes[way.node];
      if (way.stack.size() + node.depth > kMaxDepth) return;
      switch (node.op) {
        case Op::fail:
          return;
        case Op::bytes:
          way.stack.push_back({.node = way.node});
          found_.push_back(std::move(way.stack));
          return;
        case Op::split:
          if (!is_new(way)) return;
          open_.push_back({way.stack, node.next, way.old});
          way.node = node.to;
          break;
        case Op::call:
          if (node.next != kRet) way.stack.push_back({.node = node.next});
          way.node = g_.regions[node.to].start;
          break;
        case Op::repeat:
          if (!is_new(way)) return;
          return repeat(std::move(way), node.low, node.high);
        case Op::ret:
          if (way.stack.empty()) return found_.push_back({});
          Frame frame = way.stack.back();
          way.stack.pop_back();
          const bool fresh = way.stack.size() >= way.old;
          way.old = std::min(way.old, way.stack.size());
          way.node = frame.node;
          if (!frame.repeats()) break;
          // A repetition that has matched nothing adds nothing.
          if (!fresh) repeat(std::move(way), frame.low, frame.high);
          return;
      }
    }
  }

  // At a node that repeats, with so many repetitions to come.
  void repeat(Way way, uint32_t low, uint32_t high) {
    const Node& node = g_.nodes[way.node];
    if (low == 0) open_.push_back({way.stack, node.next, way.old});
    if (high == 0) return;
    const Frame left{.node = way.node, .low = one_less(low), .high = one_less(high)};
    if (left.high > 0) {
      way.stack.push_back(left);
    } else if (node.next != kRet) {  // the last one
      way.stack.push_back({.node = node.next});
    }
    way.node = g_.regions[node.to].start;
    open_.push_back(std::move(way));
  }

  bool is_new(const Way& way) {
    Stack key = way.stack;
    key.push_back({.node = way.node});
    if (seen_.size() > kMostWays || found_.size() > kMostWays) too_many();
    return seen_.insert(std::move(key)).second;
  }

  const Grammar& g_;
  StepBudget& budget_;
  std::vector<Way> open_;
  std::vector<Stack> found_;
  std::unordered_set<Stack, StackHash> seen_;
};

}  // namespace

void StepBudget::spend(uint64_t frames) {
  if (frames > left_) {
    fail(ErrorKind::refused,
         "the grammar is too ambiguous: to follow one token takes too many steps");
  }
  left_ -= frames;
}

State::State(Stacks stacks) : stacks_(std::make_shared<const Stacks>(std::move(stacks))) {}

const std::shared_ptr<const State::Stacks>& State::nothing() {
  static const auto none = std::make_shared<const Stacks>();
  return none;
}

State State::start(const Grammar& grammar, StepBudget& budget) {
  Closure closure(grammar, budget);
  closure.add({}, grammar.regions.front().start);
  return State(closure.take());
}

State State::next(const Grammar& grammar, uint8_t byte, StepBudget& budget) const {
  Closure closure(grammar, budget);
  for (const Stack& stack : *stacks_) {
    budget.spend(1);
    if (stack.empty()) continue;
    const Node& node = grammar.nodes[stack.back().node];
    if (!grammar.sets[node.to][byte]) continue;
    closure.add({stack.begin(), stack.end() - 1}, node.next);
  }
  Stacks found = closure.take();
  return found.empty() ? State() : State(std::move(found));
}

State State::next(const Grammar& grammar, std::string_view bytes, StepBudget& budget) const {
  State state = *this;
  for (char byte : bytes) {
    if (state.dead()) break;
    state = state.next(grammar, static_cast<uint8_t>(byte), budget);
  }
  return state;
}

// Each repetition takes a byte, and one may begin behind the last.
State State::within(uint32_t bytes) const {
  Stacks stacks = *stacks_;
  bool changed = false;
  for (Stack& stack : stacks) {
    for (Frame& frame : stack) {
      if (!frame.repeats()) continue;
      for (uint32_t* count : {&frame.low, &frame.high}) {
        if (*count <= bytes + 1 || *count == kEndless) continue;
        *count = kEndless;
        changed = true;
      }
    }
  }
  if (!changed) return *this;
  std::ranges::sort(stacks);
  stacks.erase(std::ranges::unique(stacks).begin(), stacks.end());
  return State(std::move(stacks));
}

uint64_t State::bytes_of(const Stacks& stacks) {
  uint64_t bytes = sizeof(Stacks);
  for (const Stack& stack : stacks) bytes += kStackOverhead + stack.size() * sizeof(Frame);
  return bytes;
}

size_t State::hash() const {
  size_t hash = stacks_->size();
  for (const Stack& stack : *stacks_)
    hash = checksum64(std::as_bytes(std::span(stack)), hash + stack.size());
  return hash;
}

}  // namespace sluice::grammar
