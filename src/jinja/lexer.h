// The tokens of a template. White space around tags is removed as transformers has it: a line break
// behind a tag, and spaces before one that begins a line (trim_blocks, lstrip_blocks).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/jinja/big_integer.h"

namespace sluice::jinja {

enum class TokenKind : uint8_t {
  data,
  block_begin,
  block_end,
  variable_begin,
  variable_end,
  name,
  text,
  integer,
  real,
  sign,  // an operator, a bracket, ...
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 1;
  std::string text;  // of a string what it holds; of a sign itself
  BigInteger integer{};
  double real = 0;

  bool is(TokenKind k) const { return kind == k; }
  bool is_sign(std::string_view sign) const { return kind == TokenKind::sign && text == sign; }
  bool is_name(std::string_view name) const { return kind == TokenKind::name && text == name; }
};

// Returns a token's description for messages.
std::string describe(const Token& token);

// `line` of the Fault's place is set as far as the template was read.
std::vector<Token> tokenize(std::string_view source, int& line);

}  // namespace sluice::jinja
