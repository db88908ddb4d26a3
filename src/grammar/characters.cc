#include "src/grammar/characters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "src/text/utf8.h"

namespace sluice::grammar {
namespace {

// Code points from `first` to `last` as sequences of ranges of bytes (Ken Thompson's construction).
class Utf8Ranges {
 public:
  Utf8Ranges(GrammarBuilder& builder, std::vector<Expr>& alternatives, ByteSet& ascii)
      : builder_(builder), alternatives_(alternatives), ascii_(ascii) {}

  void add(char32_t first, char32_t last) {
    for (char32_t longest : {U'\x7F', U'\x7FF', U'\xFFFF'}) {
      if (first > longest || last <= longest) continue;
      add(first, longest);
      return add(longest + 1, last);
    }
    if (last <= 0x7F) {
      for (char32_t c = first; c <= last; ++c) ascii_.set(c);
      return;
    }
    for (int bytes = 1; bytes < 4; ++bytes) {
      const char32_t low_bits = (char32_t{1} << (6 * bytes)) - 1;
      if ((first & ~low_bits) == (last & ~low_bits)) continue;
      if ((first & low_bits) != 0) {
        add(first, first | low_bits);
        return add((first | low_bits) + 1, last);
      }
      if ((last & low_bits) != low_bits) {
        add(first, (last & ~low_bits) - 1);
        return add(last & ~low_bits, last);
      }
    }
    std::string from, to;
    append_utf8(first, from);
    append_utf8(last, to);
    std::vector<Expr> bytes;
    for (size_t i = 0; i < from.size(); ++i) bytes.push_back(builder_.byte_range(from[i], to[i]));
    alternatives_.push_back(builder_.sequence(std::move(bytes)));
  }

 private:
  GrammarBuilder& builder_;
  std::vector<Expr>& alternatives_;
  ByteSet& ascii_;
};

constexpr std::array<std::pair<char32_t, const char*>, 7> kEscapes{{{'"', "\\\""},
                                                                    {'\\', "\\\\"},
                                                                    {'\b', "\\b"},
                                                                    {'\f', "\\f"},
                                                                    {'\n', "\\n"},
                                                                    {'\r', "\\r"},
                                                                    {'\t', "\\t"}}};

// Builds the escapes of characters that a JSON string cannot hold as they are.
Expr escaped(GrammarBuilder& builder, const CharRanges& ranges) {
  std::vector<Expr> alternatives;
  for (const auto& [c, written] : kEscapes) {
    auto holds = [at = c](CharRange r) { return r.first <= at && at <= r.last; };
    if (std::ranges::any_of(ranges, holds)) alternatives.push_back(builder.text(written));
  }
  for (CharRange r : ranges) {
    for (char32_t c = r.first; c <= std::min<char32_t>(r.last, 0x1F); ++c) {
      if (std::ranges::find(kEscapes, c, &std::pair<char32_t, const char*>::first) !=
          kEscapes.end())
        continue;
      std::vector<std::string> digits{fmt::format("\\u00{:02x}", static_cast<uint32_t>(c)),
                                      fmt::format("\\u00{:02X}", static_cast<uint32_t>(c))};
      alternatives.push_back(builder.one_of(std::move(digits)));
    }
  }
  return builder.choice(std::move(alternatives));
}

}  // namespace

Expr GrammarBuilder::characters(CharRanges ranges) {
  ByteSet ascii;
  std::vector<Expr> alternatives;
  Utf8Ranges longer(*this, alternatives, ascii);
  for (CharRange r : normalized(std::move(ranges))) longer.add(r.first, r.last);
  if (ascii.any()) alternatives.insert(alternatives.begin(), bytes(ascii));
  return choice(std::move(alternatives));
}

Expr characters(GrammarBuilder& builder, const CharRanges& ranges, Alphabet alphabet) {
  if (alphabet == Alphabet::text) return builder.characters(ranges);
  const CharRanges all = normalized(ranges);
  CharRanges plain;
  for (CharRange r : all) {
    char32_t next = std::max<char32_t>(r.first, 0x20);
    for (char32_t quoted : {U'"', U'\\'}) {
      if (quoted < next || quoted > r.last) continue;
      if (quoted > next) plain.push_back({next, quoted - 1});
      next = quoted + 1;
    }
    if (next <= r.last) plain.push_back({next, r.last});
  }
  return builder.choice({builder.characters(std::move(plain)), escaped(builder, all)});
}

Expr any_character(GrammarBuilder& builder, Alphabet alphabet) {
  return characters(builder, {{0, 0x10FFFF}}, alphabet);
}

}  // namespace sluice::grammar
