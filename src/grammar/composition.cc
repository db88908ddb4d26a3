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
    if (part.contains("source")) return source(part);
    if (part.contains("text")) return builder_.text(text(part, "text"));
    if (part.contains("token")) return builder_.text(written(text(part, "token")));
    if (part.contains("without")) return without(text(part, "without"));
    if (part.contains("space")) return space(count(part, "space"));
    if (part.contains("schema")) return schema(part, nesting);
    if (part.contains("root")) return within_root(part, nesting);
    if (part.contains("sequence")) return builder_.sequence(parts(part.at("sequence"), nesting));
    if (part.contains("choice")) return builder_.choice(parts(part.at("choice"), nesting));
    if (part.contains("repeat")) return repeated(part, nesting);
    refuse();
  }

 private:
  [[noreturn]] void refuse() const {
    fail(ErrorKind::refused, "{}: not a composition of grammars", builder_.where());
  }
  std::string text(const OrderedJson& part, const char* key) const {
    if (!part.contains(key) || !part.at(key).is_string()) refuse();
    return part.at(key).get<std::string>();
  }
  uint32_t count(const OrderedJson& part, const char* key) const {
    constexpr uint64_t kMost = 1'000'000;
    if (!part.contains(key) || !part.at(key).is_number_integer() || part.at(key) < 0) refuse();
    return static_cast<uint32_t>(std::min(part.at(key).get<uint64_t>(), kMost));
  }
  std::vector<Expr> parts(const OrderedJson& list, int nesting) {
    if (!list.is_array() || list.empty()) refuse();
    std::vector<Expr> all;
    for (const OrderedJson& one : list) all.push_back(part(one, nesting + 1));
    return all;
  }

  const OrderedJson& inner(const OrderedJson& part, const char* key) const {
    if (!part.contains(key)) refuse();
    return part.at(key);
  }

  Expr repeated(const OrderedJson& part, int nesting) {
    const uint32_t low = count(part, "low");
    const uint32_t high = part.contains("high") ? count(part, "high") : kUnlimited;
    const Expr one = this->part(part.at("repeat"), nesting + 1);
    if (!part.contains("between")) return builder_.repeat(one, low, high);
    if (low == 0 || low > high) refuse();
    const Expr again = builder_.rule_of("repeated", one);
    const Expr more = builder_.sequence({this->part(part.at("between"), nesting + 1), again});
    const uint32_t most = high == kUnlimited ? kUnlimited : high - 1;
    return builder_.sequence({again, builder_.repeat(more, low - 1, most)});
  }

  std::string written(const std::string& token) const {
    return is_special_ && is_special_(token) ? special_text(token) : token;
  }

  Expr space(uint32_t most) {
    ByteSet blank;
    for (char c : {' ', '\t', '\r', '\n'}) blank.set(static_cast<uint8_t>(c));
    return builder_.repeat(builder_.bytes(blank), 0, most);
  }

  Expr within_root(const OrderedJson& part, int nesting) {
    const OrderedJson* outer = std::exchange(root_, &part.at("root"));
    const Expr inside = this->part(inner(part, "part"), nesting + 1);
    root_ = outer;
    return inside;
  }

  Expr schema(const OrderedJson& part, int nesting) {
    const OrderedJson& given = part.at("schema");
    const OrderedJson& root = root_ != nullptr ? *root_ : given;
    std::string where = builder_.where();
    if (part.contains("of")) where.append(": ").append(text(part, "of"));
    std::optional<std::string> end;
    if (part.contains("end")) {
      end = text(part, "end");
      if (written(*end) != *end) end->clear();  // a special token is in no string
    }
    try {  // apart, so that the error names it
      GrammarBuilder alone(where);
      alone.build(json_schema(alone, given, root, steps_, end), analysis_);
    } catch (const Error& e) {
      if (!part.contains("or") || e.kind() != ErrorKind::refused) throw;
      return this->part(part.at("or"), nesting + 1);
    }
    int64_t counted = 0;  // they have been, above
    return json_schema(builder_, given, root, counted, end);
  }

  Expr source(const OrderedJson& part) {
    GrammarSource inner;
    const std::optional<SourceKind> kind = kind_of(text(part, "source"));
    if (!kind) refuse();
    inner.kind = *kind;
    if (part.contains("json")) {
      inner.json = part.at("json");
    } else {
      inner.text = text(part, "text");
    }
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
  const OrderedJson* root_ = nullptr;  // what schemas refer to; null: each to itself
  // Steps of all schemas together, so that many of them take no longer than one may.
  int64_t steps_ = 0;
  uint64_t analysis_ = 0;
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
