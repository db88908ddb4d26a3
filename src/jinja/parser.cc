#include "src/jinja/parser.h"

#include <algorithm>
#include <array>

#include "src/jinja/expression_parser.h"

namespace sluice::jinja {
namespace {

constexpr size_t kMostParameters = 255;

class Parser {
 public:
  Parser(std::vector<Token> tokens, Meter& literals, int& line)
      : tokens_(std::move(tokens), line), literals_(literals), expressions_(tokens_, literals) {}

  Body run() { return body({}); }

 private:
  using Ends = std::initializer_list<std::string_view>;
  using Handler = std::unique_ptr<Statement> (Parser::*)();
  struct Tag {
    std::string_view name;
    Handler parse;
  };
  static const std::array<Tag, 12> kTags;

  template <class T>
  std::unique_ptr<T> make() const {
    auto node = std::make_unique<T>();
    node->line = tokens_.current().line;
    return node;
  }

  bool at_end_name(Ends ends) const {
    return std::ranges::any_of(
        ends, [&](std::string_view name) { return tokens_.current().is_name(name); });
  }

  // Statements up to a tag that begins with one of `ends`, whose name is the current token then.
  Body body(Ends ends) {
    Level level(literals_);
    Body statements;
    for (;;) {
      const Token& token = tokens_.current();
      if (token.is(TokenKind::end)) {
        if (ends.size() > 0)
          refuse(FaultKind::syntax, "{{% {} %}} is missing at the end", *(ends.end() - 1));
        return statements;
      }
      if (token.is(TokenKind::data)) {
        auto text = make<Output>();
        text->text = tokens_.next().text;
        statements.push_back(std::move(text));
      } else if (token.is(TokenKind::variable_begin)) {
        tokens_.next();
        auto output = make<Output>();
        output->expression = expressions_.tuple();
        expressions_.check_known();
        tokens_.expect(TokenKind::variable_end, "end of print statement");
        statements.push_back(std::move(output));
      } else {
        tokens_.expect(TokenKind::block_begin, "a tag");
        if (at_end_name(ends)) return statements;
        statements.push_back(statement());
        end_tag();
      }
    }
  }

  void end_tag() {
    expressions_.check_known();
    tokens_.expect(TokenKind::block_end, "end of statement block");
  }

  // The body of a tag, from its end up to one of `ends`.
  Body inner(Ends ends, bool lenient = false) {
    tokens_.skip_sign(":");
    end_tag();
    const bool before = std::exchange(expressions_.lenient, lenient);
    Body statements = body(ends);
    expressions_.lenient = before;
    return statements;
  }
  // The same, and past the name of its only end.
  Body inner_to(std::string_view end) {
    Body statements = inner({end});
    tokens_.next();
    return statements;
  }

  std::unique_ptr<Statement> statement() {
    const Token token = tokens_.current();
    if (!token.is(TokenKind::name)) tokens_.unexpected("the name of a tag");
    for (const Tag& tag : kTags)
      if (token.text == tag.name) return (this->*tag.parse)();
    for (std::string_view loading : {"include", "import", "from", "extends"}) {
      if (token.text == loading)
        refuse(FaultKind::security, "{{% {} %}}: a chat template cannot load another", loading);
    }
    refuse(FaultKind::syntax, "unknown tag '{}'", token.text);
  }

  std::unique_ptr<Statement> parse_for() {
    auto node = make<For>();
    tokens_.next();
    node->target = expressions_.target(false, "in");
    if (!tokens_.skip_name("in")) tokens_.unexpected("'in'");
    node->source = expressions_.tuple(false, "recursive");
    if (tokens_.skip_name("if")) node->test = expressions_.expression();
    node->recursive = tokens_.skip_name("recursive");
    ++loops_;
    node->body = inner({"else", "endfor"});
    --loops_;
    if (tokens_.next().text == "else") node->otherwise = inner_to("endfor");
    return node;
  }

  std::unique_ptr<Statement> parse_if() {
    auto node = make<If>();
    for (;;) {
      tokens_.next();
      const bool lenient = std::exchange(expressions_.lenient, true);
      Expr test = expressions_.tuple(false);
      expressions_.lenient = lenient;
      node->branches.emplace_back(std::move(test), inner({"elif", "else", "endif"}, true));
      if (!tokens_.current().is_name("elif")) break;
    }
    if (tokens_.next().text == "else") {
      node->otherwise = inner({"endif"}, true);
      tokens_.next();
    }
    return node;
  }

  std::unique_ptr<Statement> parse_set() {
    auto node = make<Set>();
    tokens_.next();
    node->target = expressions_.target(true);
    if (tokens_.skip_sign("=")) {
      node->value = expressions_.tuple();
      return node;
    }
    auto text = make<Capture>();
    Capture& capture = *text;
    node->value = expressions_.filters(std::move(text), false);
    capture.body = inner_to("endset");
    return node;
  }

  void signature(Callable& callable) {
    tokens_.expect_sign("(");
    while (!tokens_.current().is_sign(")")) {
      if (!callable.parameters.empty()) tokens_.expect_sign(",");
      std::string name = tokens_.expect_name();
      Expr standard;
      if (tokens_.skip_sign("=")) {
        standard = expressions_.expression();
      } else if (!callable.parameters.empty() && callable.parameters.back().second) {
        refuse(FaultKind::syntax, "parameter '{}' needs a default, as the one before it", name);
      }
      callable.parameters.emplace_back(std::move(name), std::move(standard));
      if (callable.parameters.size() > kMostParameters)
        refuse(FaultKind::limit, "'{}' has more than {} parameters", callable.name,
               kMostParameters);
    }
    tokens_.expect_sign(")");
  }

  void callable_body(Callable& callable, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    expressions_.macros.push_back(&callable);
    callable.body = inner_to(end);
    expressions_.macros.pop_back();
    loops_ = loops;
  }

  std::unique_ptr<Statement> parse_macro() {
    auto node = make<MacroDefinition>();
    tokens_.next();
    node->macro.name = tokens_.expect_name();
    signature(node->macro);
    callable_body(node->macro, "endmacro");
    return node;
  }

  std::unique_ptr<Statement> parse_call() {
    auto node = make<CallBlock>();
    tokens_.next();
    node->caller.name = "caller";
    if (tokens_.current().is_sign("(")) signature(node->caller);
    Expr called = expressions_.expression();
    if (dynamic_cast<Call*>(called.get()) == nullptr)
      refuse(FaultKind::syntax, "{{% call %}} needs the call of a macro");
    node->call.reset(static_cast<Call*>(called.release()));
    callable_body(node->caller, "endcall");
    return node;
  }

  std::unique_ptr<Statement> parse_filter() {
    auto node = make<Output>();
    tokens_.next();
    auto text = make<Capture>();
    Capture& capture = *text;
    node->expression = expressions_.filters(std::move(text), true);
    capture.body = inner_to("endfilter");
    return node;
  }

  std::unique_ptr<Statement> parse_with() {
    auto node = make<Block>();
    tokens_.next();
    while (!tokens_.current().is(TokenKind::block_end)) {
      if (!node->names.empty()) tokens_.expect_sign(",");
      Target target = expressions_.target(false);
      tokens_.expect_sign("=");
      node->names.emplace_back(std::move(target), expressions_.expression());
    }
    node->body = inner_to("endwith");
    return node;
  }

  // Parses a block that transformers marks as the model's own text.
  std::unique_ptr<Statement> parse_generation() {
    auto node = make<Block>();
    tokens_.next();
    node->body = inner_to("endgeneration");
    return node;
  }

  // Parses a block, which stays as it is: there are no other templates that could replace it.
  std::unique_ptr<Statement> parse_block() {
    auto node = make<Block>();
    tokens_.next();
    const std::string name = tokens_.expect_name();
    tokens_.skip_name("scoped");
    node->body = inner_to("endblock");
    tokens_.skip_name(name);
    return node;
  }

  std::unique_ptr<Statement> parse_print() {
    auto node = make<Output>();
    tokens_.next();
    node->expression = expressions_.tuple();
    return node;
  }

  std::unique_ptr<Statement> parse_jump() {
    auto node = make<Jump>();
    const std::string name = tokens_.next().text;
    if (loops_ == 0) refuse(FaultKind::syntax, "{{% {} %}} is outside of a loop", name);
    node->flow = name == "break" ? Flow::leave_loop : Flow::next_iteration;
    return node;
  }

  Tokens tokens_;
  Meter& literals_;
  ExpressionParser expressions_;
  int loops_ = 0;  // around what is parsed, within the same macro
};

const std::array<Parser::Tag, 12> Parser::kTags{{{"for", &Parser::parse_for},
                                                 {"if", &Parser::parse_if},
                                                 {"set", &Parser::parse_set},
                                                 {"macro", &Parser::parse_macro},
                                                 {"call", &Parser::parse_call},
                                                 {"filter", &Parser::parse_filter},
                                                 {"with", &Parser::parse_with},
                                                 {"generation", &Parser::parse_generation},
                                                 {"block", &Parser::parse_block},
                                                 {"print", &Parser::parse_print},
                                                 {"break", &Parser::parse_jump},
                                                 {"continue", &Parser::parse_jump}}};

}  // namespace

Body parse(std::string_view source, Meter& literals, int& line) {
  std::vector<Token> tokens = tokenize(source, line);
  return Parser(std::move(tokens), literals, line).run();
}

}  // namespace sluice::jinja
