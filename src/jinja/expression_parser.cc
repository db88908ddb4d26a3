#include "src/jinja/expression_parser.h"

#include <algorithm>
#include <array>

#include "src/jinja/functions.h"

namespace sluice::jinja {
namespace {

constexpr int kHighestTree = 400;

template <size_t N>
const auto* find_sign(const std::array<std::pair<std::string_view, Arithmetic>, N>& signs,
                      const Token& token) {
  const auto* found =
      std::ranges::find_if(signs, [&](const auto& sign) { return token.is_sign(sign.first); });
  return found == signs.end() ? nullptr : found;
}

}  // namespace

template <class T>
std::unique_ptr<T> ExpressionParser::above(std::unique_ptr<T> node,
                                           std::initializer_list<const Node*> children) {
  for (const Node* child : children)
    if (child != nullptr) node->height = std::max(node->height, child->height + 1);
  if (node->height > kHighestTree)
    refuse(FaultKind::limit, "an expression has more than {} levels", kHighestTree);
  return node;
}

int ExpressionParser::height_of(const CallArguments& arguments) const {
  int height = 0;
  auto take = [&](const Expr& e) {
    if (e) height = std::max(height, e->height);
  };
  for (const Expr& e : arguments.positional) take(e);
  for (const auto& [name, e] : arguments.named) take(e);
  take(arguments.list);
  take(arguments.dict);
  return height;
}

template <class T>
std::unique_ptr<T> ExpressionParser::with_arguments(std::unique_ptr<T> node, const Node* child) {
  node->height = 1 + height_of(node->arguments);
  return above(std::move(node), {child});
}

// Every way into an expression within another comes through here.
Expr ExpressionParser::expression(bool with_condition) {
  Level level(literals_);
  if (!with_condition) return either();
  Expr yes = either();
  while (tokens_.current().is_name("if")) {
    auto node = make<Conditional>(tokens_.next().line);
    node->test = either();
    if (tokens_.skip_name("else")) node->no = expression();
    node->yes = std::move(yes);
    const std::initializer_list<const Node*> children{node->test.get(), node->yes.get(),
                                                      node->no.get()};
    yes = above(std::move(node), children);
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
    const std::initializer_list<const Node*> children{node->left.get(), node->right.get()};
    left = above(std::move(node), children);
  }
  return left;
}

Expr ExpressionParser::both() {
  Expr left = negation();
  while (tokens_.current().is_name("and")) {
    auto node = make<Logic>(tokens_.next().line);
    node->left = std::move(left);
    node->right = negation();
    const std::initializer_list<const Node*> children{node->left.get(), node->right.get()};
    left = above(std::move(node), children);
  }
  return left;
}

Expr ExpressionParser::negation() {
  if (!tokens_.current().is_name("not")) return comparison();
  Level level(literals_);
  auto node = make<Not>(tokens_.next().line);
  node->operand = negation();
  const Node* child = node->operand.get();
  return above(std::move(node), {child});
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
    node = above(std::move(node), {operand.get()});
    node->rest.emplace_back(*found, std::move(operand));
  }
  const Node* child = node->first.get();
  return above(std::move(node), {child});
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
    const std::initializer_list<const Node*> children{node->left.get(), node->right.get()};
    left = above(std::move(node), children);
  }
  return left;
}

Expr ExpressionParser::concatenation() {
  Expr first = product();
  if (!tokens_.current().is_sign("~")) return first;
  auto node = make<Concatenation>(tokens_.current().line);
  node->parts.push_back(std::move(first));
  while (tokens_.skip_sign("~")) node->parts.push_back(product());
  for (const Expr& part : node->parts) node->height = std::max(node->height, part->height + 1);
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
      const std::initializer_list<const Node*> children{node->left.get(), node->right.get()};
      left = above(std::move(node), children);
    }
    return left;
  };
  Expr left = power();
  while (const auto* sign = find_sign(kSigns, tokens_.current())) {
    auto node = make<Operation>(tokens_.next().line);
    node->op = sign->second;
    node->left = std::move(left);
    node->right = power();
    const std::initializer_list<const Node*> children{node->left.get(), node->right.get()};
    left = above(std::move(node), children);
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
    const Node* child = sign->operand.get();
    node = above(std::move(sign), {child});
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
  if (token.is(TokenKind::integer)) return literal(Value::integer(tokens_.next().integer), line);
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
    node->height = std::max(node->height, node->items.back()->height + 1);
  }
  tokens_.expect_sign("]");
  return above(std::move(node), {});
}

Expr ExpressionParser::dict() {
  auto node = make<DictDisplay>(tokens_.next().line);
  while (!tokens_.current().is_sign("}")) {
    if (!node->entries.empty()) tokens_.expect_sign(",");
    if (tokens_.current().is_sign("}")) break;
    Expr key = expression();
    tokens_.expect_sign(":");
    Expr value = expression();
    node->height = std::max({node->height, key->height + 1, value->height + 1});
    node->entries.emplace_back(std::move(key), std::move(value));
  }
  tokens_.expect_sign("}");
  return above(std::move(node), {});
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
    node->height = std::max(node->height, node->items.back()->height + 1);
    if (!tokens_.current().is_sign(",")) break;
    comma = true;
  }
  if (!comma && !node->items.empty()) return std::move(node->items.front());
  if (!comma && !in_brackets) tokens_.unexpected("an expression");
  return above(std::move(node), {});
}

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
    const Node* child = attribute->object.get();
    return above(std::move(attribute), {child});
  }
  if (!tokens_.current().is(TokenKind::integer)) tokens_.unexpected("a name or a number");
  auto item = make<ItemOf>(token.line);
  item->key = literal(Value::integer(tokens_.next().integer), token.line);
  item->object = std::move(node);
  const Node* child = item->object.get();
  return above(std::move(item), {child});
}

// Behind "[": an index, a slice, or a tuple of indices.
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
    const std::initializer_list<const Node*> children{slice->object.get(), slice->start.get(),
                                                      slice->stop.get(), slice->step.get()};
    return above(std::move(slice), children);
  }
  auto item = make<ItemOf>(line);
  item->object = std::move(node);
  item->key = std::move(first);
  if (!item->key || tokens_.current().is_sign(",")) {
    auto keys = make<ListDisplay>(line);
    keys->tuple = true;
    if (item->key) keys->items.push_back(std::move(item->key));
    while (tokens_.skip_sign(",")) keys->items.push_back(expression());
    for (const Expr& key : keys->items) keys->height = std::max(keys->height, key->height + 1);
    item->key = std::move(keys);
  }
  tokens_.expect_sign("]");
  const std::initializer_list<const Node*> children{item->object.get(), item->key.get()};
  return above(std::move(item), children);
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
  const Node* child = call->callee.get();
  return with_arguments(std::move(call), child);
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
    if (use->filter == nullptr && !lenient)
      refuse(FaultKind::syntax, "no filter named '{}'", use->name);
    use->subject = std::move(subject);
    const Node* child = use->subject.get();
    subject = with_arguments(std::move(use), child);
  }
  return subject;
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
  if (use->test == nullptr && !lenient) refuse(FaultKind::syntax, "no test named '{}'", use->name);
  const int line = use->line;
  use->subject = std::move(subject);
  const Node* child = use->subject.get();
  Expr node = with_arguments(std::move(use), child);
  if (!negated) return node;
  auto negation = make<Not>(line);
  negation->operand = std::move(node);
  child = negation->operand.get();
  return above(std::move(negation), {child});
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
