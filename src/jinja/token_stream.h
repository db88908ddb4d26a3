// The tokens of a template, one after the other, for the parser.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/jinja/fault.h"
#include "src/jinja/lexer.h"

namespace sluice::jinja {

class Tokens {
 public:
  Tokens(std::vector<Token> tokens, int& line) : tokens_(std::move(tokens)), line_(line) {
    line_ = current().line;
  }

  const Token& current() const { return tokens_[at_]; }
  const Token& following() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token next() {
    Token token = current();
    if (at_ + 1 < tokens_.size()) ++at_;
    line_ = current().line;
    return token;
  }
  bool skip_sign(std::string_view sign) {
    const bool found = current().is_sign(sign);
    if (found) next();
    return found;
  }
  bool skip_name(std::string_view name) {
    const bool found = current().is_name(name);
    if (found) next();
    return found;
  }
  Token expect(TokenKind kind, std::string_view what) {
    if (!current().is(kind)) unexpected(what);
    return next();
  }
  void expect_sign(std::string_view sign) {
    if (!skip_sign(sign)) unexpected(sign);
  }
  std::string expect_name() { return expect(TokenKind::name, "name").text; }
  [[noreturn]] void unexpected(std::string_view expected) const {
    refuse(FaultKind::syntax, "expected {}, got '{}'", expected, describe(current()));
  }

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int& line_;
};

}  // namespace sluice::jinja
