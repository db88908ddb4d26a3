#include "src/grammar/builder.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/grammar/emitter.h"

namespace sluice::grammar {
namespace {

constexpr size_t kMaxParts = size_t{1} << 19;
constexpr size_t kMaxRules = size_t{1} << 16;
constexpr char32_t kLastCodePoint = 0x10FFFF;
constexpr CharRange kSurrogates{0xD800, 0xDFFF};

}  // namespace

CharRanges normalized(CharRanges ranges) {
  CharRanges cut;
  for (CharRange r : ranges) {
    r.last = std::min(r.last, kLastCodePoint);
    if (r.first < kSurrogates.first)
      cut.push_back({r.first, std::min<char32_t>(r.last, kSurrogates.first - 1)});
    if (r.last > kSurrogates.last)
      cut.push_back({std::max<char32_t>(r.first, kSurrogates.last + 1), r.last});
  }
  std::erase_if(cut, [](CharRange r) { return r.first > r.last; });
  std::ranges::sort(cut);
  CharRanges merged;
  for (CharRange r : cut) {
    if (!merged.empty() && r.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, r.last);
    } else {
      merged.push_back(r);
    }
  }
  return merged;
}

CharRanges complement(const CharRanges& ranges) {
  CharRanges others;
  char32_t next = 0;
  for (CharRange r : normalized(ranges)) {
    if (r.first > next) others.push_back({next, r.first - 1});
    next = r.last + 1;
  }
  if (next <= kLastCodePoint) others.push_back({next, kLastCodePoint});
  return normalized(std::move(others));
}

Expr GrammarBuilder::add(const Part& part) {
  if (parts_.size() >= kMaxParts || lists_.size() > kMaxParts || texts_.size() > 4 * kMaxTextBytes)
    fail(ErrorKind::refused, "{}: too large: it has more than {} parts", where_, kMaxParts);
  parts_.push_back(part);
  return {static_cast<uint32_t>(parts_.size() - 1)};
}

Expr GrammarBuilder::text(std::string_view bytes) {
  auto first = static_cast<uint32_t>(texts_.size());
  texts_ += bytes;
  return add({.kind = Kind::text, .first = first, .count = static_cast<uint32_t>(bytes.size())});
}

uint32_t GrammarBuilder::set_of(const ByteSet& set) {
  constexpr size_t kLooked = 64;  // those that come again mostly came lately
  for (size_t i = sets_.size(); i > sets_.size() - std::min(sets_.size(), kLooked);) {
    if (sets_[--i] == set) return static_cast<uint32_t>(i);
  }
  sets_.push_back(set);
  return static_cast<uint32_t>(sets_.size() - 1);
}

Expr GrammarBuilder::bytes(const ByteSet& set) {
  if (set.none()) return choice({});
  return add({.kind = Kind::bytes, .first = set_of(set)});
}

Expr GrammarBuilder::byte_range(char first, char last) {
  ByteSet set;
  for (int b = static_cast<uint8_t>(first); b <= static_cast<uint8_t>(last); ++b)
    set.set(static_cast<size_t>(b));
  return bytes(set);
}

Expr GrammarBuilder::list(Kind kind, const std::vector<Expr>& parts) {
  auto first = static_cast<uint32_t>(lists_.size());
  for (Expr part : parts) lists_.push_back(part.index);
  return add({.kind = kind, .first = first, .count = static_cast<uint32_t>(parts.size())});
}

Expr GrammarBuilder::sequence(std::vector<Expr> parts) {
  return parts.size() == 1 ? parts.front() : list(Kind::sequence, parts);
}

Expr GrammarBuilder::choice(std::vector<Expr> alternatives) {
  return alternatives.size() == 1 ? alternatives.front() : list(Kind::choice, alternatives);
}

Expr GrammarBuilder::repeat(Expr part, uint32_t low, uint32_t high) {
  if (low > high) return choice({});
  return add({.kind = Kind::repeat, .first = part.index, .low = low, .high = high});
}

Expr GrammarBuilder::one_of(std::vector<std::string> texts) {
  std::ranges::sort(texts);
  texts.erase(std::ranges::unique(texts).begin(), texts.end());
  return texts.empty() ? choice({}) : prefix_tree(texts, 0, texts.size(), 0);
}

// Builds what follows the first `depth` bytes, which the texts [begin, end) share.
Expr GrammarBuilder::prefix_tree(const std::vector<std::string>& sorted, size_t begin, size_t end,
                                 size_t depth) {
  const std::string& first = sorted[begin];
  const std::string& last = sorted[end - 1];
  size_t common = depth;
  while (common < first.size() && common < last.size() && first[common] == last[common]) ++common;
  std::vector<Expr> parts;
  if (common > depth) parts.push_back(text(std::string_view(first).substr(depth, common - depth)));
  if (end - begin > 1) {
    std::vector<Expr> alternatives;
    if (first.size() == common) {
      alternatives.push_back(text({}));
      ++begin;
    }
    while (begin < end) {
      size_t same = begin + 1;
      while (same < end && sorted[same][common] == sorted[begin][common]) ++same;
      alternatives.push_back(prefix_tree(sorted, begin, same, common));
      begin = same;
    }
    parts.push_back(choice(std::move(alternatives)));
  }
  return parts.empty() ? text({}) : sequence(std::move(parts));
}

RuleId GrammarBuilder::rule(std::string name) {
  if (rules_.size() >= kMaxRules)
    fail(ErrorKind::refused, "{}: too large: it has more than {} rules", where_, kMaxRules);
  rules_.push_back({.name = std::move(name), .body = {}});
  return {static_cast<uint32_t>(rules_.size() - 1)};
}

void GrammarBuilder::define(RuleId rule, Expr body) {
  rules_[rule.index].body = body;
  rules_[rule.index].defined = true;
}

Expr GrammarBuilder::call(RuleId rule) { return add({.kind = Kind::call, .first = rule.index}); }

Expr GrammarBuilder::rule_of(std::string name, Expr body) {
  RuleId made = rule(std::move(name));
  define(made, body);
  return call(made);
}

std::shared_ptr<const Grammar> GrammarBuilder::build(Expr root) {
  uint64_t steps = 0;
  return build(root, steps);
}

std::shared_ptr<const Grammar> GrammarBuilder::build(Expr root, uint64_t& steps) {
  auto grammar = std::make_shared<Grammar>(Emitter(*this).emit(root));
  analyse(*grammar, where_, steps);
  return grammar;
}

}  // namespace sluice::grammar
