// Parts of an expression that follow a value: subscripts, calls, filters, tests. And targets of
// assignments.

#include "src/jinja/expression_parser.h"
#include "src/jinja/functions.h"
#include "src/jinja/numbers.h"

namespace sluice::jinja {

Expr ExpressionParser::postfix(Expr node) {
  for (;;) {
    const Token& token = tokens_.current();
    if (token.is_sign(".") || token.is_sign("[")) {
      node = subscript(std::move(node));
    } else if (token.is_sign("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

Expr ExpressionParser::filters_and_tests(Expr node) {
  for (;;) {
    const Token& token = tokens_.current();
    if (token.is_sign("|")) {
      node = filters(std::move(node), false);
    } else if (token.is_name("is")) {
      node = test(std::move(node));
    } else if (token.is_sign("(")) {
      node = call(std::move(node));
    } else {
      return node;
    }
  }
}

Expr ExpressionParser::subscript(Expr node) {
  const Token token = tokens_.next();
  if (token.text == "[") return brackets(std::move(node), token.line);
  if (tokens_.current().is(TokenKind::name)) {
    auto attribute = make<AttributeOf>(token.line);
    attribute->name = tokens_.next().text;
    attribute->object = std::move(node);
    return attribute;
  }
  if (!tokens_.current().is(TokenKind::integer)) tokens_.unexpected("a name or a number");
  auto item = make<ItemOf>(token.line);
  item->key = literal(integer_value(literals_, tokens_.next().integer), token.line);
  item->object = std::move(node);
  return item;
}

// Parses what is behind "[": an index, a slice, or a tuple of indices.
Expr ExpressionParser::brackets(Expr node, int line) {
  auto bound = [&]() -> Expr {
    const Token& t = tokens_.current();
    return t.is_sign(":") || t.is_sign("]") || t.is_sign(",") ? nullptr : expression();
  };
  Expr first = bound();
  if (tokens_.skip_sign(":")) {
    auto slice = make<SliceOf>(line);
    slice->object = std::move(node);
    slice->start = std::move(first);
    slice->stop = bound();
    if (tokens_.skip_sign(":")) slice->step = bound();
    tokens_.expect_sign("]");
    return slice;
  }
  auto item = make<ItemOf>(line);
  item->object = std::move(node);
  item->key = std::move(first);
  if (!item->key || tokens_.current().is_sign(",")) {
    auto keys = make<ListDisplay>(line);
    keys->tuple = true;
    if (item->key) keys->items.push_back(std::move(item->key));
    while (tokens_.skip_sign(",")) keys->items.push_back(expression());
    item->key = std::move(keys);
  }
  tokens_.expect_sign("]");
  return item;
}

CallArguments ExpressionParser::call_arguments() {
  CallArguments arguments;
  auto in_order = [&](bool right) {
    if (!right) refuse(FaultKind::syntax, "arguments of a call are in no valid order");
  };
  tokens_.expect_sign("(");
  for (bool first = true; !tokens_.current().is_sign(")"); first = false) {
    if (!first) tokens_.expect_sign(",");
    if (tokens_.current().is_sign(")")) break;
    if (tokens_.skip_sign("*")) {
      in_order(!arguments.list && !arguments.dict);
      arguments.list = expression();
    } else if (tokens_.skip_sign("**")) {
      in_order(!arguments.dict);
      arguments.dict = expression();
    } else if (tokens_.current().is(TokenKind::name) && tokens_.following().is_sign("=")) {
      in_order(!arguments.dict);
      std::string name = tokens_.next().text;
      tokens_.next();
      arguments.named.emplace_back(std::move(name), expression());
    } else {
      in_order(!arguments.list && !arguments.dict && arguments.named.empty());
      arguments.positional.push_back(expression());
    }
  }
  tokens_.expect_sign(")");
  return arguments;
}

Expr ExpressionParser::call(Expr node) {
  auto call = make<Call>(tokens_.current().line);
  call->arguments = call_arguments();
  call->callee = std::move(node);
  return call;
}

Expr ExpressionParser::filters(Expr subject, bool named_first) {
  while (named_first || tokens_.current().is_sign("|")) {
    if (!named_first) tokens_.next();
    named_first = false;
    auto use = make<FilterUse>(tokens_.current().line);
    use->name = tokens_.expect_name();
    while (tokens_.skip_sign(".")) use->name.append(1, '.').append(tokens_.expect_name());
    if (tokens_.current().is_sign("(")) use->arguments = call_arguments();
    use->filter = find_filter(use->name);
    if (use->filter == nullptr) note_unknown("filter", use->name);
    use->subject = std::move(subject);
    subject = std::move(use);
  }
  return subject;
}

void ExpressionParser::note_unknown(std::string_view what, const std::string& name) {
  if (!lenient) unknown_.push_back(fmt::format("no {} named '{}'", what, name));
}

void ExpressionParser::check_known() {
  nodes_ = 0;
  if (!unknown_.empty()) throw Fault(FaultKind::syntax, unknown_.front());
}

// An argument of a test may stand without brackets.
bool ExpressionParser::begins_argument() const {
  const Token& t = tokens_.current();
  if (t.is_name("else") || t.is_name("or") || t.is_name("and")) return false;
  return t.is(TokenKind::name) || t.is(TokenKind::text) || t.is(TokenKind::integer) ||
         t.is(TokenKind::real) || t.is_sign("[") || t.is_sign("{");
}

Expr ExpressionParser::test(Expr subject) {
  auto use = make<TestUse>(tokens_.next().line);
  const bool negated = tokens_.skip_name("not");
  use->name = tokens_.expect_name();
  while (tokens_.skip_sign(".")) use->name.append(1, '.').append(tokens_.expect_name());
  if (tokens_.current().is_sign("(")) {
    use->arguments = call_arguments();
  } else if (begins_argument()) {
    if (tokens_.current().is_name("is"))
      refuse(FaultKind::syntax, "tests cannot be chained with 'is'");
    use->arguments.positional.push_back(postfix(primary()));
  }
  use->test = find_test(use->name);
  if (use->test == nullptr) note_unknown("test", use->name);
  const int line = use->line;
  use->subject = std::move(subject);
  Expr node = std::move(use);
  if (!negated) return node;
  auto negation = make<Not>(line);
  negation->operand = std::move(node);
  return negation;
}

Target ExpressionParser::single_target(bool with_namespace) {
  Level level(literals_);
  if (tokens_.skip_sign("(")) {
    Target inner = target(with_namespace);
    tokens_.expect_sign(")");
    return inner;
  }
  Target single;
  single.name = tokens_.expect(TokenKind::name, "a name to assign to").text;
  for (std::string_view constant : {"true", "false", "none", "True", "False", "None"})
    if (single.name == constant) refuse(FaultKind::syntax, "cannot assign to '{}'", constant);
  if (with_namespace && tokens_.skip_sign(".")) single.attribute = tokens_.expect_name();
  return single;
}

Target ExpressionParser::target(bool with_namespace, std::string_view end) {
  Target first = single_target(with_namespace);
  if (!tokens_.current().is_sign(",")) return first;
  Target several;
  several.tuple = true;
  several.parts.push_back(std::move(first));
  while (tokens_.skip_sign(",")) {
    const Token& t = tokens_.current();
    if (t.is(TokenKind::block_end) || t.is_sign(")") || (!end.empty() && t.is_name(end))) break;
    several.parts.push_back(single_target(with_namespace));
  }
  return several;
}

}  // namespace sluice::jinja
