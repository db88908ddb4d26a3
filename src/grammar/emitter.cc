#include "src/grammar/emitter.h"

#include <utility>

#include "src/base/error.h"

namespace sluice::grammar {

namespace {

constexpr int kMaxTree = 4000;  // nesting of parts

}  // namespace

uint64_t Grammar::bytes() const {
  uint64_t bytes = sizeof(*this) + nodes.size() * sizeof(Node) + sets.size() * sizeof(ByteSet);
  for (const Region& r : regions) bytes += sizeof(Region) + r.name.size();
  return bytes;
}

uint32_t Emitter::node(const Node& node) {
  if (grammar_.nodes.size() >= kMaxNodes)
    fail(ErrorKind::refused, "{}: too large: it has more than {} states", from_.where(), kMaxNodes);
  grammar_.nodes.push_back(node);
  return static_cast<uint32_t>(grammar_.nodes.size() - 1);
}

// Region 0 is the root, then come the rules, then what is repeated.
Grammar Emitter::emit(Expr root) {
  node({.op = Op::ret});
  node({.op = Op::fail});
  grammar_.sets = from_.sets_;
  byte_sets_.assign(256, 0);
  bodies_.push_back(root);
  grammar_.regions.push_back({.name = "root"});
  for (const GrammarBuilder::Rule& rule : from_.rules_) {
    if (!rule.defined)
      fail(ErrorKind::refused, "{}: the rule {} is not defined", from_.where(), rule.name);
    bodies_.push_back(rule.body);
    grammar_.regions.push_back({.name = rule.name});
  }
  for (size_t r = 0; r < bodies_.size(); ++r) {
    const std::string name = grammar_.regions[r].name;
    name_ = name;
    auto begin = static_cast<uint32_t>(grammar_.nodes.size());
    uint32_t start = emit(bodies_[r], kRet);
    Region& region = grammar_.regions[r];
    region.start = start;
    region.begin = begin;
    region.end = static_cast<uint32_t>(grammar_.nodes.size());
  }
  find_byte_classes();
  return std::move(grammar_);
}

// The code of `expr` with what comes after it, from the back.
uint32_t Emitter::emit(Expr expr, uint32_t next) {
  using Kind = GrammarBuilder::Kind;
  constexpr size_t kMaxSteps = 8 * kMaxNodes;
  if (++steps_ > kMaxSteps || depth_ > kMaxTree)
    fail(ErrorKind::refused, "{}: too large, or its parts are nested too deeply", from_.where());
  ++depth_;
  const Part& part = from_.parts_[expr.index];
  uint32_t start = next;
  switch (part.kind) {
    case Kind::text:
      start = emit_text(part, next);
      break;
    case Kind::bytes:
      start = node({.op = Op::bytes, .to = part.first, .next = next});
      break;
    case Kind::sequence:
      for (uint32_t i = part.count; i-- > 0;) start = emit({from_.lists_[part.first + i]}, start);
      break;
    case Kind::choice:
      start = emit_choice(part, next);
      break;
    case Kind::repeat:
      start = emit_repeat(part, next);
      break;
    case Kind::call:
      start = node({.op = Op::call, .to = part.first + 1, .next = next});
      break;
  }
  --depth_;
  return start;
}

uint32_t Emitter::emit_text(const Part& part, uint32_t next) {
  for (uint32_t i = part.count; i-- > 0;) {
    auto byte = static_cast<uint8_t>(from_.texts_[part.first + i]);
    uint32_t& set = byte_sets_[byte];
    if (set == 0) {
      grammar_.sets.emplace_back().set(byte);
      set = static_cast<uint32_t>(grammar_.sets.size());
    }
    next = node({.op = Op::bytes, .to = set - 1, .next = next});
  }
  return next;
}

uint32_t Emitter::emit_choice(const Part& part, uint32_t next) {
  uint32_t start = kFail;
  for (uint32_t i = part.count; i-- > 0;) {
    uint32_t alternative = emit({from_.lists_[part.first + i]}, next);
    bool only = i + 1 == part.count;
    start = only ? alternative : node({.op = Op::split, .to = alternative, .next = start});
  }
  return start;
}

// A repeat without a count is a cycle of nodes; any other one is a region of its own.
uint32_t Emitter::emit_repeat(const Part& part, uint32_t next) {
  const Expr body{part.first};
  if (part.high == 0) return next;
  if (part.low == 1 && part.high == 1) return emit(body, next);
  if (part.low == 0 && part.high == 1) {
    uint32_t once = emit(body, next);
    return node({.op = Op::split, .to = once, .next = next});
  }
  if (part.high == kUnlimited && part.low <= 1) {
    uint32_t again = node({.op = Op::split, .to = kFail, .next = next});
    uint32_t start = emit(body, again);
    grammar_.nodes[again].to = start;
    return part.low == 0 ? again : start;
  }
  auto region = static_cast<uint32_t>(bodies_.size());
  bodies_.push_back(body);
  grammar_.regions.push_back({.name = std::string(name_)});
  return node({.op = Op::repeat, .to = region, .next = next, .low = part.low, .high = part.high});
}

// Each set divides the classes that it holds a part of.
void Emitter::find_byte_classes() {
  std::vector<uint32_t> of(256, 0);
  uint32_t classes = 1;
  for (const ByteSet& set : grammar_.sets) {
    std::vector<uint32_t> inside(classes, UINT32_MAX);
    std::vector<uint32_t> has_others(classes, 0);
    for (size_t b = 0; b < 256; ++b) has_others[of[b]] |= set[b] ? 0 : 1;
    for (size_t b = 0; b < 256; ++b) {
      if (!set[b] || has_others[of[b]] == 0) continue;
      uint32_t& made = inside[of[b]];
      if (made == UINT32_MAX) made = classes++;
      of[b] = made;
    }
    if (classes == 256) break;
  }
  for (size_t b = 0; b < 256; ++b) grammar_.byte_class[b] = static_cast<uint8_t>(of[b]);
  grammar_.classes = classes;
}

}  // namespace sluice::grammar
