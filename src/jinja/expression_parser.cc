#include "src/jinja/expression_parser.h"

#include <algorithm>
#include <array>

#include "src/jinja/numbers.h"

namespace sluice::jinja {
namespace {

template <size_t N>
const auto* find_sign(const std::array<std::pair<std::string_view, Arithmetic>, N>& signs,
                      const Token& token) {
  const auto* found =
      std::ranges::find_if(signs, [&](const auto& sign) { return token.is_sign(sign.first); });
  return found == signs.end() ? nullptr : found;
}

}  // namespace

// Every way into an expression within another comes through here.
Expr ExpressionParser::expression(bool with_condition) {
  Level level(literals_);
  if (!with_condition) return either();
  const size_t unknown = unknown_.size();
  Expr yes = either();
  while (tokens_.current().is_name("if")) {
    auto node = make<Conditional>(tokens_.next().line);
    node->test = either();
    if (tokens_.skip_name("else")) node->no = expression();
    unknown_.resize(unknown);
    node->yes = std::move(yes);
    yes = std::move(node);
  }
  return yes;
}

Expr ExpressionParser::either() {
  Expr left = both();
  while (tokens_.current().is_name("or")) {
    auto node = make<Logic>(tokens_.next().line);
    node->is_or = true;
    node->left = std::move(left);
    node->right = both();
    left = std::move(node);
  }
  return left;
}

Expr ExpressionParser::both() {
  Expr left = negation();
  while (tokens_.current().is_name("and")) {
    auto node = make<Logic>(tokens_.next().line);
    node->left = std::move(left);
    node->right = negation();
    left = std::move(node);
  }
  return left;
}

Expr ExpressionParser::negation() {
  if (!tokens_.current().is_name("not")) return comparison();
  Level level(literals_);
  auto node = make<Not>(tokens_.next().line);
  node->operand = negation();
  return node;
}

std::optional<Relation> ExpressionParser::relation() {
  using enum Relation;
  constexpr std::array<std::pair<std::string_view, Relation>, 6> kSigns{{{"==", equal},
                                                                         {"!=", unequal},
                                                                         {"<", less},
                                                                         {"<=", less_equal},
                                                                         {">", greater},
                                                                         {">=", greater_equal}}};
  for (const auto& [sign, relation] : kSigns)
    if (tokens_.skip_sign(sign)) return relation;
  if (tokens_.skip_name("in")) return in;
  if (!tokens_.current().is_name("not") || !tokens_.following().is_name("in")) return std::nullopt;
  tokens_.next();
  tokens_.next();
  return not_in;
}

Expr ExpressionParser::comparison() {
  const int line = tokens_.current().line;
  Expr first = sum();
  std::optional<Relation> found = relation();
  if (!found) return first;
  auto node = make<Comparison>(line);
  node->first = std::move(first);
  for (; found; found = relation()) {
    Expr operand = sum();
    node->rest.emplace_back(*found, std::move(operand));
  }
  return node;
}

Expr ExpressionParser::sum() {
  constexpr std::array<std::pair<std::string_view, Arithmetic>, 2> kSigns{
      {{"+", Arithmetic::add}, {"-", Arithmetic::subtract}}};
  Expr left = concatenation();
  while (const auto* sign = find_sign(kSigns, tokens_.current())) {
    auto node = make<Operation>(tokens_.next().line);
    node->op = sign->second;
    node->left = std::move(left);
    node->right = concatenation();
    left = std::move(node);
  }
  return left;
}

Expr ExpressionParser::concatenation() {
  Expr first = product();
  if (!tokens_.current().is_sign("~")) return first;
  auto node = make<Concatenation>(tokens_.current().line);
  node->parts.push_back(std::move(first));
  while (tokens_.skip_sign("~")) node->parts.push_back(product());
  return node;
}

Expr ExpressionParser::product() {
  constexpr std::array<std::pair<std::string_view, Arithmetic>, 4> kSigns{
      {{"*", Arithmetic::multiply},
       {"/", Arithmetic::divide},
       {"//", Arithmetic::floor_divide},
       {"%", Arithmetic::remainder}}};
  auto power = [&] {
    Expr left = unary();
    while (tokens_.current().is_sign("**")) {
      auto node = make<Operation>(tokens_.next().line);
      node->op = Arithmetic::power;
      node->left = std::move(left);
      node->right = unary();
      left = std::move(node);
    }
    return left;
  };
  Expr left = power();
  while (const auto* sign = find_sign(kSigns, tokens_.current())) {
    auto node = make<Operation>(tokens_.next().line);
    node->op = sign->second;
    node->left = std::move(left);
    node->right = power();
    left = std::move(node);
  }
  return left;
}

Expr ExpressionParser::unary(bool with_filters) {
  Level level(literals_);
  Expr node;
  if (tokens_.current().is_sign("-") || tokens_.current().is_sign("+")) {
    auto sign = make<Signed>(tokens_.current().line);
    sign->minus = tokens_.next().text == "-";
    sign->operand = unary(false);
    node = std::move(sign);
  } else {
    node = primary();
  }
  node = postfix(std::move(node));
  return with_filters ? filters_and_tests(std::move(node)) : std::move(node);
}

Expr ExpressionParser::literal(Value value, int line) {
  auto node = make<Literal>(line);
  node->constant = std::move(value);
  return node;
}

Expr ExpressionParser::primary() {
  const Token& token = tokens_.current();
  const int line = token.line;
  if (token.is(TokenKind::name)) return name_or_constant();
  if (token.is(TokenKind::text)) return string();
  if (token.is(TokenKind::integer))
    return literal(integer_value(literals_, tokens_.next().integer), line);
  if (token.is(TokenKind::real)) return literal(Value::real(tokens_.next().real), line);
  if (tokens_.skip_sign("(")) {
    Expr inner = tuple(true, {}, true);
    tokens_.expect_sign(")");
    return inner;
  }
  if (token.is_sign("[")) return list();
  if (token.is_sign("{")) return dict();
  refuse(FaultKind::syntax, "unexpected '{}'", describe(token));
}

Expr ExpressionParser::name_or_constant() {
  const Token token = tokens_.next();
  if (token.text == "true" || token.text == "True")
    return literal(Value::boolean(true), token.line);
  if (token.text == "false" || token.text == "False")
    return literal(Value::boolean(false), token.line);
  if (token.text == "none" || token.text == "None") return literal(Value::none(), token.line);
  for (Callable* macro : macros) {
    macro->takes_list |= token.text == "varargs";
    macro->takes_dict |= token.text == "kwargs";
    macro->takes_caller |= token.text == "caller";
  }
  auto node = make<Name>(token.line);
  node->name = token.text;
  return node;
}

// Neighbouring ones are one.
Expr ExpressionParser::string() {
  const int line = tokens_.current().line;
  std::string text;
  while (tokens_.current().is(TokenKind::text)) text += tokens_.next().text;
  return literal(make_text(literals_, std::move(text)), line);
}

Expr ExpressionParser::list() {
  auto node = make<ListDisplay>(tokens_.next().line);
  while (!tokens_.current().is_sign("]")) {
    if (!node->items.empty()) tokens_.expect_sign(",");
    if (tokens_.current().is_sign("]")) break;
    node->items.push_back(expression());
  }
  tokens_.expect_sign("]");
  return node;
}

Expr ExpressionParser::dict() {
  auto node = make<DictDisplay>(tokens_.next().line);
  while (!tokens_.current().is_sign("}")) {
    if (!node->entries.empty()) tokens_.expect_sign(",");
    if (tokens_.current().is_sign("}")) break;
    Expr key = expression();
    tokens_.expect_sign(":");
    Expr value = expression();
    node->entries.emplace_back(std::move(key), std::move(value));
  }
  tokens_.expect_sign("}");
  return node;
}

Expr ExpressionParser::tuple(bool with_condition, std::string_view end, bool in_brackets) {
  auto node = make<ListDisplay>(tokens_.current().line);
  node->tuple = true;
  auto ended = [&] {
    const Token& t = tokens_.current();
    return t.is(TokenKind::variable_end) || t.is(TokenKind::block_end) || t.is_sign(")") ||
           (!end.empty() && t.is_name(end));
  };
  bool comma = false;
  for (;;) {
    if (!node->items.empty()) tokens_.expect_sign(",");
    if (ended()) break;
    node->items.push_back(expression(with_condition));
    if (!tokens_.current().is_sign(",")) break;
    comma = true;
  }
  if (!comma && !node->items.empty()) return std::move(node->items.front());
  if (!comma && !in_brackets) tokens_.unexpected("an expression");
  return node;
}

}  // namespace sluice::jinja
