#include "src/grammar/json_text.h"

#include <utility>

#include "src/grammar/characters.h"

namespace sluice::grammar {
namespace {

constexpr uint32_t kMostIndent = 20;

}  // namespace

// A rule for what is used often.
Expr JsonParts::shared(std::optional<RuleId>& rule, const char* name, Expr (JsonParts::*make)()) {
  if (!rule) {
    rule = builder_.rule(name);
    builder_.define(*rule, (this->*make)());
  }
  return builder_.call(*rule);
}

Expr JsonParts::string() { return shared(string_, "string", &JsonParts::make_string); }
Expr JsonParts::character() { return shared(character_, "character", &JsonParts::make_character); }
Expr JsonParts::number() { return shared(number_, "number", &JsonParts::make_number); }
Expr JsonParts::value() { return shared(value_, "value", &JsonParts::make_value); }
Expr JsonParts::object() { return shared(object_, "object", &JsonParts::make_object); }
Expr JsonParts::array() { return shared(array_, "array", &JsonParts::make_array); }

Expr JsonParts::space() {
  ByteSet blank;
  blank.set(' ').set('\t');
  Expr line = builder_.sequence(
      {builder_.text("\n"), builder_.repeat(builder_.bytes(blank), 0, kMostIndent)});
  return builder_.choice({builder_.text({}), builder_.text(" "), line});
}

Expr JsonParts::make_string() {
  return builder_.sequence(
      {builder_.text("\""), builder_.any_number(make_character()), builder_.text("\"")});
}

// A character as it is, or escaped; one beyond the first 65536 as a pair of surrogates.
Expr JsonParts::make_character() {
  GrammarBuilder& b = builder_;
  auto set = [](std::string_view bytes) {
    ByteSet all;
    for (char c : bytes) all.set(static_cast<uint8_t>(c));
    return all;
  };
  constexpr std::string_view kHex = "0123456789abcdefABCDEF";
  auto hex = [&](std::string_view digits) { return b.bytes(set(digits)); };
  Expr plain = b.characters({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, 0x10FFFF}});
  Expr any = b.sequence({hex("0123456789abcefABCEF"), hex(kHex), hex(kHex), hex(kHex)});
  Expr below = b.sequence({hex("dD"), hex("01234567"), hex(kHex), hex(kHex)});
  Expr high = b.sequence({hex("dD"), hex("89abAB"), hex(kHex), hex(kHex)});
  Expr low = b.sequence({hex("dD"), hex("cdefCDEF"), hex(kHex), hex(kHex)});
  Expr code = b.choice({any, below, b.sequence({high, b.text("\\u"), low})});
  Expr escape = b.choice({b.bytes(set("\"\\/bfnrt")), b.sequence({b.text("u"), code})});
  return b.choice({plain, b.sequence({b.text("\\"), escape})});
}

Expr JsonParts::make_value() {
  return builder_.choice(
      {object(), array(), string(), number(), builder_.one_of({"true", "false", "null"})});
}

Expr JsonParts::make_object() {
  Expr member = builder_.rule_of(
      "member", builder_.sequence({string(), builder_.text(":"), space(), value()}));
  return in_brackets('{', list(member, 1, kUnlimited), true, '}');
}

Expr JsonParts::make_array() { return in_brackets('[', list(value(), 1, kUnlimited), true, ']'); }

Expr JsonParts::comma() { return builder_.sequence({builder_.text(","), space()}); }

Expr JsonParts::list(Expr element, uint32_t low, uint32_t high) {
  Expr more = builder_.sequence({comma(), element});
  const uint32_t most = high == kUnlimited ? kUnlimited : high - 1;
  return builder_.sequence({element, builder_.repeat(more, low - 1, most)});
}

Expr JsonParts::in_brackets(char open, Expr elements, bool or_none, char close) {
  Expr some = builder_.sequence({elements, space()});
  return builder_.sequence({builder_.text({&open, 1}), space(),
                            or_none ? builder_.optional(some) : some, builder_.text({&close, 1})});
}

Expr JsonParts::quoted(std::string_view text) { return builder_.text(OrderedJson(text).dump()); }

Expr JsonParts::literal(const OrderedJson& value) {
  if (!value.is_structured()) return builder_.text(value.dump());
  const bool object = value.is_object();
  std::vector<Expr> parts;
  for (const auto& [key, element] : value.items()) {
    if (!parts.empty()) parts.push_back(comma());
    if (object) {
      parts.push_back(quoted(key));
      parts.push_back(builder_.text(":"));
      parts.push_back(space());
    }
    parts.push_back(literal(element));
  }
  const char open = object ? '{' : '[', close = object ? '}' : ']';
  if (!parts.empty()) return in_brackets(open, builder_.sequence(std::move(parts)), false, close);
  return builder_.sequence({builder_.text({&open, 1}), space(), builder_.text({&close, 1})});
}

}  // namespace sluice::grammar
