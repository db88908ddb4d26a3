#include "src/grammar/composition.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/grammar/json_schema.h"
#include "src/grammar/token_table.h"

namespace sluice::grammar {
namespace {

constexpr std::array<std::pair<std::string_view, SourceKind>, 5> kKinds{
    {{"json_object", SourceKind::json_object},
     {"json_schema", SourceKind::json_schema},
     {"regex", SourceKind::regex},
     {"choice", SourceKind::choice},
     {"gbnf", SourceKind::gbnf}}};

std::optional<SourceKind> kind_of(std::string_view name) {
  const auto* found = std::ranges::find(kKinds, name, &decltype(kKinds)::value_type::first);
  if (found == kKinds.end()) return std::nullopt;
  return found->second;
}

class Composer {
 public:
  Composer(GrammarBuilder& builder, const IsSpecial& is_special)
      : builder_(builder), is_special_(is_special) {}

  Expr part(const OrderedJson& part, int nesting) {
    if (nesting > kMaxNesting || !part.is_object() || part.empty()) refuse();
    if (part.contains("text") && !part.contains("source")) return builder_.text(text(part, "text"));
    if (part.contains("token")) return builder_.text(written(text(part, "token")));
    if (part.contains("without")) return without(text(part, "without"));
    if (part.contains("space")) return space(count(part, "space"));
    if (part.contains("schema")) return schema(part);
    if (part.contains("source")) return source(part);
    if (part.contains("sequence")) return builder_.sequence(parts(part.at("sequence"), nesting));
    if (part.contains("choice")) return builder_.choice(parts(part.at("choice"), nesting));
    if (!part.contains("repeat")) refuse();
    const uint32_t high = part.contains("high") ? count(part, "high") : kUnlimited;
    return builder_.repeat(this->part(part.at("repeat"), nesting + 1), count(part, "low"), high);
  }

 private:
  [[noreturn]] void refuse() const {
    fail(ErrorKind::refused, "{}: this is no composition of grammars", builder_.where());
  }
  std::string text(const OrderedJson& part, const char* key) const {
    if (!part.contains(key) || !part.at(key).is_string()) refuse();
    return part.at(key).get<std::string>();
  }
  uint32_t count(const OrderedJson& part, const char* key) const {
    constexpr uint64_t kMost = 1'000'000;
    if (!part.contains(key) || !part.at(key).is_number_unsigned()) refuse();
    return static_cast<uint32_t>(std::min(part.at(key).get<uint64_t>(), kMost));
  }
  std::vector<Expr> parts(const OrderedJson& list, int nesting) {
    if (!list.is_array() || list.empty()) refuse();
    std::vector<Expr> all;
    for (const OrderedJson& one : list) all.push_back(part(one, nesting + 1));
    return all;
  }

  std::string written(const std::string& token) const {
    return is_special_ && is_special_(token) ? special_text(token) : token;
  }

  Expr space(uint32_t most) {
    ByteSet blank;
    for (char c : {' ', '\t', '\r', '\n'}) blank.set(static_cast<uint8_t>(c));
    return builder_.repeat(builder_.bytes(blank), 0, most);
  }

  Expr schema(const OrderedJson& part) {
    const OrderedJson& given = part.at("schema");
    std::string where = builder_.where();
    if (part.contains("of")) where.append(": ").append(text(part, "of"));
    try {  // apart, so that the error names it
      GrammarBuilder alone(where);
      const Expr root = json_schema(alone, given);
      alone.build(root);
    } catch (const Error& e) {
      const bool object = part.contains("or_object") && part.at("or_object") == true;
      if (!object || e.kind() != ErrorKind::refused) throw;
      return JsonParts(builder_).object();
    }
    return json_schema(builder_, given);
  }

  Expr source(const OrderedJson& part) {
    GrammarSource inner;
    const std::optional<SourceKind> kind = kind_of(text(part, "source"));
    if (!kind) refuse();
    inner.kind = *kind;
    inner.text = text(part, "text");
    return read_source(builder_, inner, is_special_);
  }

  // No byte of UTF-8 is the mark of special tokens.
  Expr without(const std::string& tag) {
    if (tag.empty() || tag.find(tag.front(), 1) != tag.npos) refuse();
    ByteSet any;
    any.set().reset(kSpecialMark);
    if (written(tag) != tag) return builder_.any_number(builder_.bytes(any));
    const ByteSet others = any.reset(static_cast<uint8_t>(tag.front()));
    if (tag.size() == 1) return builder_.any_number(builder_.bytes(others));
    std::vector<std::string> begun;  // by the tag's first bytes
    for (size_t size = 1; size < tag.size(); ++size) begun.push_back(tag.substr(0, size));
    const Expr again = builder_.any_number(builder_.one_of(std::move(begun)));
    const Expr item =
        builder_.choice({builder_.bytes(others), builder_.sequence({again, broken(tag, others)})});
    return builder_.sequence({builder_.any_number(item), again});
  }

  // The beginning of a tag that goes on as none.
  Expr broken(const std::string& tag, const ByteSet& others) {
    Expr rest{};
    for (size_t at = tag.size() - 1; at > 0; --at) {
      ByteSet wrong = others;
      wrong.reset(static_cast<uint8_t>(tag[at]));
      const Expr ends = builder_.bytes(wrong);
      const Expr right = builder_.text({&tag[at], 1});
      rest =
          at == tag.size() - 1 ? ends : builder_.choice({ends, builder_.sequence({right, rest})});
    }
    return builder_.sequence({builder_.text({tag.data(), 1}), rest});
  }

  GrammarBuilder& builder_;
  const IsSpecial& is_special_;
};

}  // namespace

std::string_view name_of(SourceKind kind) {
  for (const auto& [name, each] : kKinds)
    if (each == kind) return name;
  return {};
}

Expr composition(GrammarBuilder& builder, const OrderedJson& part, const IsSpecial& is_special) {
  return Composer(builder, is_special).part(part, 0);
}

}  // namespace sluice::grammar
