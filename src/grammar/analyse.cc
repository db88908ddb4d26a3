// Properties of a grammar's nodes before any text: which regions may match nothing, how deep a
// stack they need, and that none is left-recursive.
#include <algorithm>
#include <vector>

#include "src/base/error.h"
#include "src/grammar/emitter.h"

namespace sluice::grammar {
namespace {

constexpr uint32_t kNever = UINT32_MAX;  // a depth: the region's end cannot be reached

class Analysis {
 public:
  Analysis(Grammar& grammar, std::string_view where, uint64_t& steps)
      : g_(grammar), where_(where), steps_(steps) {}

  void run() {
    g_.nodes[kRet].nullable = true;
    for (Node& node : g_.nodes) node.depth = kNever;
    g_.nodes[kRet].depth = 0;
    find_callers();
    solve();
    for (const Region& region : g_.regions) {
      if (g_.nodes[region.start].depth > kMaxDepth) refuse_endless(region);
    }
    let_empty_repetitions_be_none();
    refuse_left_recursion();
  }

 private:
  void find_callers() {
    callers_.resize(g_.regions.size());
    for (size_t r = 0; r < g_.regions.size(); ++r) {
      for (uint32_t n = g_.regions[r].begin; n < g_.regions[r].end; ++n) {
        const Node& node = g_.nodes[n];
        if (node.op != Op::call && node.op != Op::repeat) continue;
        std::vector<uint32_t>& of = callers_[node.to];
        if (of.empty() || of.back() != r) of.push_back(static_cast<uint32_t>(r));
      }
    }
  }

  // A region is looked at again when one that it calls has changed.
  void solve() {
    constexpr uint64_t kMostSteps = 100'000'000;
    std::vector<uint32_t> waiting;
    std::vector<bool> waits(g_.regions.size(), true);
    for (size_t r = 0; r < g_.regions.size(); ++r) waiting.push_back(static_cast<uint32_t>(r));
    while (!waiting.empty()) {
      uint32_t r = waiting.back();
      waiting.pop_back();
      waits[r] = false;
      const Region& region = g_.regions[r];
      steps_ += region.end - region.begin + 1;
      if (steps_ > kMostSteps)
        fail(ErrorKind::refused, "{}: too complex: its rules lead to too many others", where_);
      if (!update(region)) continue;
      for (uint32_t caller : callers_[r]) {
        if (!waits[caller]) waiting.push_back(caller);
        waits[caller] = true;
      }
    }
  }

  // Returns whether the region's start has changed. What a node leads to comes before it, but for
  // cycles.
  bool update(const Region& region) {
    const Node before = g_.nodes[region.start];
    for (bool changed = true; changed;) {
      changed = false;
      for (uint32_t n = region.begin; n < region.end; ++n) changed = update(g_.nodes[n]) || changed;
    }
    const Node& after = g_.nodes[region.start];
    return after.nullable != before.nullable || after.depth != before.depth;
  }

  bool update(Node& node) {
    const bool nullable = is_nullable(node);
    const uint32_t depth = depth_of(node);
    const bool changed = nullable != node.nullable || depth != node.depth;
    node.nullable = nullable;
    node.depth = depth;
    return changed;
  }

  const Node& at(uint32_t node) const { return g_.nodes[node]; }
  const Node& start_of(const Node& node) const { return at(g_.regions[node.to].start); }

  bool is_nullable(const Node& node) const {
    switch (node.op) {
      case Op::split:
        return at(node.to).nullable || at(node.next).nullable;
      case Op::call:
        return start_of(node).nullable && at(node.next).nullable;
      case Op::repeat:
        return (node.low == 0 || start_of(node).nullable) && at(node.next).nullable;
      case Op::ret:
        return true;
      default:
        return false;
    }
  }

  uint32_t depth_of(const Node& node) const {
    auto behind = [](uint32_t depth) { return depth == kNever ? kNever : depth + 1; };
    const uint32_t next = at(node.next).depth;
    switch (node.op) {
      case Op::bytes:
        return next;
      case Op::split:
        return std::min(at(node.to).depth, next);
      case Op::call:
        if (node.next == kRet) return start_of(node).depth;
        return std::max(behind(start_of(node).depth), next);
      case Op::repeat:
        return node.low == 0 ? next : std::max(behind(start_of(node).depth), next);
      case Op::ret:
        return 0;
      default:
        return kNever;
    }
  }

  [[noreturn]] void refuse_endless(const Region& region) const {
    if (g_.nodes[region.start].depth == kNever) {
      fail(ErrorKind::refused, "{}: the rule {} never ends: no text matches it", where_,
           region.name);
    }
    fail(ErrorKind::refused, "{}: the rule {} needs more than {} rules within one another", where_,
         region.name, kMaxDepth);
  }

  // Then an empty repetition need never be made.
  void let_empty_repetitions_be_none() {
    for (Node& node : g_.nodes) {
      if (node.op == Op::repeat && start_of(node).nullable) node.low = 0;
    }
  }

  // The regions that `region` enters before it has matched a byte.
  std::vector<uint32_t> entered_at_once(const Region& region) const {
    std::vector<uint32_t> regions;
    std::vector<bool> seen(region.end - region.begin);
    std::vector<uint32_t> open{region.start};
    while (!open.empty()) {
      uint32_t n = open.back();
      open.pop_back();
      if (n < region.begin || seen[n - region.begin]) continue;
      seen[n - region.begin] = true;
      const Node& node = at(n);
      if (node.op == Op::split) open.insert(open.end(), {node.to, node.next});
      if (node.op != Op::call && node.op != Op::repeat) continue;
      regions.push_back(node.to);
      if (start_of(node).nullable || (node.op == Op::repeat && node.low == 0))
        open.push_back(node.next);
    }
    return regions;
  }

  // Takes away, again and again, a region that no other enters at once: circles are left.
  void refuse_left_recursion() const {
    std::vector<std::vector<uint32_t>> enters;
    std::vector<uint32_t> entered(g_.regions.size(), 0);
    for (const Region& region : g_.regions) {
      enters.push_back(entered_at_once(region));
      for (uint32_t to : enters.back()) ++entered[to];
    }
    std::vector<uint32_t> free;
    for (uint32_t r = 0; r < entered.size(); ++r) {
      if (entered[r] == 0) free.push_back(r);
    }
    while (!free.empty()) {
      uint32_t r = free.back();
      free.pop_back();
      for (uint32_t to : enters[r]) {
        if (--entered[to] == 0) free.push_back(to);
      }
    }
    for (size_t r = 0; r < entered.size(); ++r) {
      if (entered[r] == 0) continue;
      fail(ErrorKind::refused,
           "{}: the rule {} may call itself before it has matched anything (left recursion); write "
           "it with a repetition",
           where_, g_.regions[r].name);
    }
  }

  Grammar& g_;
  std::string_view where_;
  uint64_t& steps_;
  std::vector<std::vector<uint32_t>> callers_;  // of each region
};

}  // namespace

void analyse(Grammar& grammar, std::string_view where, uint64_t& steps) {
  Analysis(grammar, where, steps).run();
}

}  // namespace sluice::grammar
