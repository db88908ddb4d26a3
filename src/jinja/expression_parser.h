// Expressions, by Jinja's grammar.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "src/jinja/nodes.h"
#include "src/jinja/token_stream.h"

namespace sluice::jinja {

class ExpressionParser {
 public:
  ExpressionParser(Tokens& tokens, Meter& literals) : tokens_(tokens), literals_(literals) {}

  Expr expression(bool with_condition = true);
  // An expression, or several with commas between: a tuple. `end`: a name that may end it.
  Expr tuple(bool with_condition = true, std::string_view end = {}, bool in_brackets = false);
  Expr filters(Expr subject, bool named_first);  // "| name(...) | ..."
  Target target(bool with_namespace, std::string_view end = {});
  CallArguments call_arguments();

  // Filters and tests that are not known are faults, but in a condition and its branches only where
  // they are used. Throws where there were any since the last call.
  void check_known();
  bool lenient = false;  // in a condition
  // Macros around what is parsed, which learn what their bodies read.
  std::vector<Callable*> macros;

 private:
  // A long chain is a deep tree, whose end takes a call for each level.
  static constexpr int kMostNodes = 4000;

  template <class T>
  std::unique_ptr<T> make(int line) {
    if (++nodes_ > kMostNodes)
      refuse(FaultKind::limit, "an expression has more than {} parts", kMostNodes);
    auto node = std::make_unique<T>();
    node->line = line;
    return node;
  }

  Expr either();
  Expr both();
  Expr negation();
  Expr comparison();
  Expr sum();
  Expr concatenation();
  Expr product();
  Expr unary(bool with_filters = true);
  Expr primary();
  Expr name_or_constant();
  Expr literal(Value value, int line);
  Expr string();
  Expr list();
  Expr dict();
  Expr postfix(Expr node);
  Expr filters_and_tests(Expr node);
  Expr subscript(Expr node);
  Expr brackets(Expr node, int line);
  Expr call(Expr node);
  Expr test(Expr subject);
  bool begins_argument() const;
  std::optional<Relation> relation();
  Target single_target(bool with_namespace);
  void note_unknown(std::string_view what, const std::string& name);

  Tokens& tokens_;
  Meter& literals_;
  std::vector<std::string> unknown_;  // faults since check_known()
  int nodes_ = 0;                     // made since then
};

}  // namespace sluice::jinja
