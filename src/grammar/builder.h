// The parts that grammars are put together from. Each compiler (JSON schema, regular expressions,
// GBNF) writes into a GrammarBuilder; build() makes the immutable Grammar.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/grammar/grammar.h"

namespace sluice::grammar {

// Code points [first, last].
struct CharRange {
  char32_t first = 0;
  char32_t last = 0;
  auto operator<=>(const CharRange&) const = default;
};
using CharRanges = std::vector<CharRange>;

// A part of a grammar: the texts that it matches. Belongs to its builder.
struct Expr {
  uint32_t index = 0;
};

struct RuleId {
  uint32_t index = 0;
};

// Nesting of groups, schemas and the like that compilers take.
inline constexpr int kMaxNesting = 100;
inline constexpr uint32_t kUnlimited = UINT32_MAX;

class GrammarBuilder {
 public:
  // `where` begins each error: Error(refused).
  explicit GrammarBuilder(std::string where) : where_(std::move(where)) {}

  Expr text(std::string_view bytes);  // may be empty
  Expr bytes(const ByteSet& set);     // one byte
  Expr byte_range(char first, char last);
  // One character, as UTF-8, of these ranges in any order. Surrogates are none.
  Expr characters(CharRanges ranges);
  Expr sequence(std::vector<Expr> parts);
  Expr choice(std::vector<Expr> alternatives);  // none: matches nothing, not even the empty text
  // One of these texts; equal beginnings are matched once.
  Expr one_of(std::vector<std::string> texts);
  Expr repeat(Expr part, uint32_t low, uint32_t high);  // high may be kUnlimited
  Expr optional(Expr part) { return repeat(part, 0, 1); }
  Expr any_number(Expr part) { return repeat(part, 0, kUnlimited); }

  // A rule may be called before it is defined, and by itself.
  RuleId rule(std::string name);
  void define(RuleId rule, Expr body);
  bool defined(RuleId rule) const { return rules_[rule.index].defined; }
  Expr call(RuleId rule);
  Expr rule_of(std::string name, Expr body);  // calls a rule with this body

  // The grammar of the texts that `root` matches whole. Error(refused) for a rule that is not
  // defined, calls itself before it has matched a byte, or never ends, and for more than the
  // limits.
  std::shared_ptr<const Grammar> build(Expr root);
  // The same; `steps` counts what it takes, from what others have taken.
  std::shared_ptr<const Grammar> build(Expr root, uint64_t& steps);

  const std::string& where() const { return where_; }

 private:
  friend class Emitter;
  enum class Kind : uint8_t { text, bytes, sequence, choice, repeat, call };
  struct Part {
    Kind kind;
    uint32_t first = 0;  // text: offset in texts_; bytes: set; lists: offset in lists_; rule; part
    uint32_t count = 0;  // of bytes, or of parts
    uint32_t low = 0;
    uint32_t high = 0;
  };
  struct Rule {
    std::string name;
    Expr body;
    bool defined = false;
  };
  Expr add(const Part& part);
  Expr list(Kind kind, const std::vector<Expr>& parts);
  uint32_t set_of(const ByteSet& set);
  Expr prefix_tree(const std::vector<std::string>& sorted, size_t begin, size_t end, size_t depth);

  std::string where_;
  std::vector<Part> parts_;
  std::vector<uint32_t> lists_;
  std::string texts_;
  std::vector<ByteSet> sets_;
  std::vector<Rule> rules_;
};

// Sorted, without overlaps; surrogates left out.
CharRanges normalized(CharRanges ranges);
CharRanges complement(const CharRanges& ranges);

}  // namespace sluice::grammar
