// From the parts of a GrammarBuilder to the nodes of a Grammar, in two steps: code, then what is
// known of it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "src/grammar/builder.h"

namespace sluice::grammar {

class Emitter {
 public:
  explicit Emitter(const GrammarBuilder& builder) : from_(builder) {}
  Grammar emit(Expr root);

 private:
  using Part = GrammarBuilder::Part;
  uint32_t node(const Node& node);
  uint32_t emit(Expr expr, uint32_t next);
  uint32_t emit_text(const Part& part, uint32_t next);
  uint32_t emit_choice(const Part& part, uint32_t next);
  uint32_t emit_repeat(const Part& part, uint32_t next);
  void find_byte_classes();

  const GrammarBuilder& from_;
  Grammar grammar_;
  std::vector<Expr> bodies_;         // of the regions
  std::string_view name_;            // of the rule that is emitted
  std::vector<uint32_t> byte_sets_;  // of single bytes; 0: there is none yet, else its number + 1
  size_t steps_ = 0;
  int depth_ = 0;
};

// Fills in what the nodes lead to. Error(refused), which begins with `where`, for a rule that calls
// itself before a byte, or that never ends, and for too many `steps`, which go on from what others
// have taken.
void analyse(Grammar& grammar, std::string_view where, uint64_t& steps);

}  // namespace sluice::grammar
