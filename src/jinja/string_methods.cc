#include <algorithm>
#include <array>

#include "src/jinja/characters.h"
#include "src/jinja/formatting.h"
#include "src/jinja/methods.h"
#include "src/jinja/operators.h"
#include "src/jinja/run.h"
#include "src/jinja/show.h"
#include "src/jinja/string_tests.h"
#include "src/jinja/text_methods.h"
#include "src/text/utf8.h"

namespace sluice::jinja {
namespace {

Value text(const Bound& a, std::string_view bytes) {
  return make_text(a.meter(), std::string(bytes));
}

// The parts of a text, each of which is charged as it is found.
class Parts {
 public:
  explicit Parts(const Bound& a) : a_(a), charge_(a.meter()) {}
  void operator()(std::string_view part) {
    charge_.add(sizeof(Value));
    items_.push_back(text(a_, part));
  }
  size_t size() const { return items_.size(); }
  Value list() { return make_list(a_.meter(), std::move(items_)); }
  Value backwards() {
    std::ranges::reverse(items_);
    return list();
  }

 private:
  const Bound& a_;
  Values items_;
  Charge charge_;
};

Value upper_method(const Value& s, const Bound& a) { return text(a, upper(s.text())); }
Value lower_method(const Value& s, const Bound& a) { return text(a, lower(s.text())); }
Value casefold(const Value& s, const Bound& a) { return text(a, fold_case(s.text())); }
Value capitalize_method(const Value& s, const Bound& a) { return text(a, capitalize(s.text())); }

Value title(const Value& s, const Bound& a) {
  Buffer out(a.meter());
  bool inside = false;
  const std::string& source = s.text();
  for (size_t at = 0; at < source.size();) {
    const Utf8Char c = utf8_char_at(source, at);
    const auto bytes = std::string_view(source).substr(at, static_cast<size_t>(c.bytes));
    out.add(inside ? lower(bytes) : title_character(bytes));
    inside = is_cased(c.code_point);
    at += bytes.size();
  }
  return make_text(a.meter(), out.take());
}

Value swapcase(const Value& s, const Bound& a) {
  Buffer out(a.meter());
  const std::string& source = s.text();
  for (size_t at = 0; at < source.size();) {
    const Utf8Char c = utf8_char_at(source, at);
    const auto bytes = std::string_view(source).substr(at, static_cast<size_t>(c.bytes));
    out.add(is_upper(c.code_point) ? lower(bytes) : upper(bytes));
    at += bytes.size();
  }
  return make_text(a.meter(), out.take());
}

Value stripped(const Value& s, const Bound& a, Side side) {
  if (!a.is_none(0)) return text(a, strip_of(a.meter(), s.text(), a.text(0, {}), side));
  a.meter().text_steps(s.text().size());
  std::string_view left = s.text();
  if (side != Side::right) left = strip_left(left);
  if (side != Side::left) left = strip_right(left);
  return text(a, left);
}

Value strip_method(const Value& s, const Bound& a) { return stripped(s, a, Side::both); }
Value lstrip(const Value& s, const Bound& a) { return stripped(s, a, Side::left); }
Value rstrip(const Value& s, const Bound& a) { return stripped(s, a, Side::right); }

Value split_at(const Bound& a, std::string_view source, std::string_view separator, int64_t most) {
  Parts parts(a);
  size_t at = 0;
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t found = find_in(source, separator, at);
    if (found == std::string_view::npos) break;
    parts(source.substr(at, found - at));
    at = found + separator.size();
  }
  parts(source.substr(at));
  return parts.list();
}

// Searching backwards is not linear.
void charge_backwards(const Bound& a, std::string_view source, std::string_view what) {
  a.meter().step(static_cast<int64_t>((source.size() / 64 + 1) * (what.size() / 16 + 1)));
}

Value split_at_right(const Bound& a, std::string_view source, std::string_view separator,
                     int64_t most) {
  Parts parts(a);
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    const size_t found = source.rfind(separator);
    if (found == std::string_view::npos) break;
    parts(source.substr(found + separator.size()));
    source = source.substr(0, found);
  }
  parts(source);
  return parts.backwards();
}

Value split_words(const Bound& a, std::string_view source, int64_t most) {
  Parts parts(a);
  for (source = strip_left(source); !source.empty(); source = strip_left(source)) {
    const bool rest = most >= 0 && static_cast<int64_t>(parts.size()) == most;
    const std::string_view word = rest ? source : first_word(source);
    parts(word);
    source.remove_prefix(word.size());
  }
  return parts.list();
}

Value split_words_right(const Bound& a, std::string_view source, int64_t most) {
  Parts parts(a);
  for (source = strip_right(source); !source.empty(); source = strip_right(source)) {
    const bool rest = most >= 0 && static_cast<int64_t>(parts.size()) == most;
    const std::string_view word = rest ? source : last_word(source);
    parts(word);
    source.remove_suffix(word.size());
  }
  return parts.backwards();
}

Value split(const Value& s, const Bound& a, bool right) {
  const int64_t most = a.integer(1, -1);
  a.meter().text_steps(s.text().size());
  if (a.is_none(0))
    return right ? split_words_right(a, s.text(), most) : split_words(a, s.text(), most);
  const std::string separator = a.text(0, {});
  if (separator.empty()) refuse(FaultKind::value, "empty separator");
  if (!right) return split_at(a, s.text(), separator, most);
  charge_backwards(a, s.text(), separator);
  return split_at_right(a, s.text(), separator, most);
}

Value split_method(const Value& s, const Bound& a) { return split(s, a, false); }
Value rsplit(const Value& s, const Bound& a) { return split(s, a, true); }

Value splitlines(const Value& s, const Bound& a) {
  Parts lines(a);
  const bool keep = a.flag(0);
  for (std::string_view rest = s.text(); !rest.empty();) lines(take_line(rest, keep));
  return lines.list();
}

Value part(const Value& s, const Bound& a, bool right) {
  const std::string separator = a.text(0, {});
  if (separator.empty()) refuse(FaultKind::value, "empty separator");
  if (right) charge_backwards(a, s.text(), separator);
  a.meter().text_steps(s.text().size());
  const std::string_view source = s.text();
  const size_t found = right ? source.rfind(separator) : find_in(source, separator);
  if (found == std::string_view::npos) {
    if (right) return make_tuple(a.meter(), {text(a, ""), text(a, ""), s});
    return make_tuple(a.meter(), {s, text(a, ""), text(a, "")});
  }
  return make_tuple(a.meter(), {text(a, source.substr(0, found)), text(a, separator),
                                text(a, source.substr(found + separator.size()))});
}

Value partition(const Value& s, const Bound& a) { return part(s, a, false); }
Value rpartition(const Value& s, const Bound& a) { return part(s, a, true); }

Value join(const Value& s, const Bound& a) {
  Buffer out(a.meter());
  bool first = true;
  for (const Value& item : iterate(a.meter(), a.value(0))) {
    if (!item.is(Kind::text)) {
      need_defined(item);
      refuse(FaultKind::value, "join(): expected str instance, {} found", type_name(item));
    }
    if (!first) out.add(s.text());
    first = false;
    out.add(item.text());
  }
  return make_text(a.meter(), out.take());
}

Value replace(const Value& s, const Bound& a) {
  return replace_all(a.meter(), s.text(), a.text(0, {}), a.text(1, {}), a.integer(2, -1));
}

Value removeprefix(const Value& s, const Bound& a) {
  const std::string prefix = a.text(0, {});
  return s.text().starts_with(prefix) ? text(a, std::string_view(s.text()).substr(prefix.size()))
                                      : s;
}

Value removesuffix(const Value& s, const Bound& a) {
  const std::string suffix = a.text(0, {});
  if (suffix.empty() || !s.text().ends_with(suffix)) return s;
  return text(a, std::string_view(s.text()).substr(0, s.text().size() - suffix.size()));
}

// The part of a text that start and end choose, as bytes.
struct Window {
  std::string_view text;
  size_t begin = 0;     // its first character
  bool beyond = false;  // it starts behind the end
};

Window window(const Value& s, const Bound& a) {
  const auto size = static_cast<int64_t>(s.text_object().characters);
  auto bound = [&](size_t i, int64_t fallback) {
    if (a.is_none(i)) return fallback;
    const int64_t at = a.integer(i, fallback);
    return at < 0 ? std::max<int64_t>(at + size, 0) : at;
  };
  const int64_t start = bound(1, 0), end = std::min(bound(2, size), size);
  if (start > size || start > end) return {.text = {}, .begin = 0, .beyond = true};
  const std::string_view all = s.text();
  if (!a.is_none(1) || !a.is_none(2)) a.meter().text_steps(all.size());
  const size_t first = byte_of(all, static_cast<size_t>(start));
  const size_t last = byte_of(all, static_cast<size_t>(end));
  return {.text = all.substr(first, last - first), .begin = static_cast<size_t>(start)};
}

int64_t position(const Value& s, const Bound& a, bool right) {
  const std::string what = a.text(0, {});
  a.meter().text_steps(s.text().size());
  if (right) charge_backwards(a, s.text(), what);
  const Window in = window(s, a);
  if (in.beyond) return -1;
  const size_t found = right ? in.text.rfind(what) : find_in(in.text, what);
  if (found == std::string_view::npos) return -1;
  return static_cast<int64_t>(in.begin + character_count(in.text.substr(0, found)));
}

int64_t need_position(const Value& s, const Bound& a, bool right) {
  const int64_t found = position(s, a, right);
  if (found < 0) refuse(FaultKind::value, "substring not found");
  return found;
}

Value find(const Value& s, const Bound& a) { return Value::integer(position(s, a, false)); }
Value rfind(const Value& s, const Bound& a) { return Value::integer(position(s, a, true)); }
Value index(const Value& s, const Bound& a) { return Value::integer(need_position(s, a, false)); }
Value rindex(const Value& s, const Bound& a) { return Value::integer(need_position(s, a, true)); }

Value count(const Value& s, const Bound& a) {
  const std::string what = a.text(0, {});
  a.meter().text_steps(s.text().size());
  const Window in = window(s, a);
  if (in.beyond) return Value::integer(0);
  if (what.empty()) return Value::integer(static_cast<int64_t>(character_count(in.text)) + 1);
  int64_t found = 0;
  for (size_t at = 0; (at = find_in(in.text, what, at)) != std::string_view::npos;
       at += what.size())
    ++found;
  return Value::integer(found);
}

// startswith and endswith take one text or a tuple of them.
Value has_affix(const Value& s, const Bound& a, bool at_end) {
  const Window in = window(s, a);
  auto fits = [&](const Value& affix) {
    if (!affix.is(Kind::text)) {
      need_defined(affix);
      refuse(FaultKind::value, "{} first arg must be str or a tuple of str, not {}",
             at_end ? "endswith" : "startswith", type_name(affix));
    }
    if (in.beyond) return false;
    return at_end ? in.text.ends_with(affix.text()) : in.text.starts_with(affix.text());
  };
  const Value affix = a.value(0);
  return Value::boolean(affix.is(Kind::tuple) ? std::ranges::any_of(affix.items(), fits)
                                              : fits(affix));
}

Value startswith(const Value& s, const Bound& a) { return has_affix(s, a, false); }
Value endswith(const Value& s, const Bound& a) { return has_affix(s, a, true); }

Value justified(const Value& s, const Bound& a, Side side) {
  const std::string fill = a.text(1, " ");
  if (character_count(fill) != 1)
    refuse(FaultKind::value, "the fill character must be exactly one character long");
  return justify(a.meter(), s.text(), a.integer(0, 0), fill, side);
}

Value ljust(const Value& s, const Bound& a) { return justified(s, a, Side::right); }
Value rjust(const Value& s, const Bound& a) { return justified(s, a, Side::left); }
Value center(const Value& s, const Bound& a) { return justified(s, a, Side::both); }

Value zfill(const Value& s, const Bound& a) {
  const bool sign = s.text().starts_with('-') || s.text().starts_with('+');
  const std::string_view digits = std::string_view(s.text()).substr(sign ? 1 : 0);
  const int64_t width = std::max<int64_t>(a.integer(0, 0), 0) - (sign ? 1 : 0);
  const Value filled = justify(a.meter(), digits, width, "0", Side::left);
  return text(a, s.text().substr(0, sign ? 1 : 0) + filled.text());
}

Value expandtabs(const Value& s, const Bound& a) {
  const int64_t size = a.integer(0, 8);
  Buffer out(a.meter());
  int64_t column = 0;
  for (size_t at = 0; at < s.text().size();) {
    const Utf8Char c = utf8_char_at(s.text(), at);
    const auto bytes = std::string_view(s.text()).substr(at, static_cast<size_t>(c.bytes));
    at += bytes.size();
    if (c.code_point == '\t') {
      const int64_t spaces = size > 0 ? size - column % size : 0;
      out.repeat(" ", static_cast<uint64_t>(spaces));
      column += spaces;
      continue;
    }
    out.add(bytes);
    column = c.code_point == '\n' || c.code_point == '\r' ? 0 : column + 1;
  }
  return make_text(a.meter(), out.take());
}

Value format(const Value& s, const Bound& a) { return brace_format(a.run(), s.text(), a.rest()); }

Value format_map(const Value& s, const Bound& a) {
  const Value map = a.value(0);
  if (!map.is(Kind::dict)) refuse(FaultKind::value, "format_map() needs a mapping");
  Arguments arguments;
  for (const auto& [key, value] : map.dict().entries)
    if (key.is(Kind::text)) arguments.named.emplace_back(key.text(), value);
  return brace_format(a.run(), s.text(), arguments);
}

template <bool (*Holds)(std::string_view)>
Value text_is(const Value& s, const Bound& a) {
  a.meter().text_steps(4 * s.text().size());
  return Value::boolean(Holds(s.text()));
}

constexpr std::array kMethods = std::to_array<Filter>({
    {"capitalize", "", capitalize_method},
    {"casefold", "", casefold},
    {"center", "width fillchar=", center},
    {"count", "sub start= end=", count},
    {"endswith", "suffix start= end=", endswith},
    {"expandtabs", "tabsize=", expandtabs},
    {"find", "sub start= end=", find},
    {"format", "*", format},
    {"format_map", "mapping", format_map},
    {"index", "sub start= end=", index},
    {"isalnum", "", text_is<all_alnum>},
    {"isalpha", "", text_is<all_alpha>},
    {"isascii", "", text_is<all_in_ascii>},
    {"isdecimal", "", text_is<all_decimal>},
    {"isdigit", "", text_is<all_digits>},
    {"isidentifier", "", text_is<is_identifier>},
    {"islower", "", text_is<is_lower_case>},
    {"isnumeric", "", text_is<all_numeric>},
    {"isprintable", "", text_is<all_printable>},
    {"isspace", "", text_is<all_space>},
    {"istitle", "", text_is<is_title_case>},
    {"isupper", "", text_is<is_upper_case>},
    {"join", "iterable", join},
    {"ljust", "width fillchar=", ljust},
    {"lower", "", lower_method},
    {"lstrip", "chars=", lstrip},
    {"partition", "sep", partition},
    {"removeprefix", "prefix", removeprefix},
    {"removesuffix", "suffix", removesuffix},
    {"replace", "old new count=", replace},
    {"rfind", "sub start= end=", rfind},
    {"rindex", "sub start= end=", rindex},
    {"rjust", "width fillchar=", rjust},
    {"rpartition", "sep", rpartition},
    {"rsplit", "sep= maxsplit=", rsplit},
    {"rstrip", "chars=", rstrip},
    {"split", "sep= maxsplit=", split_method},
    {"splitlines", "keepends=", splitlines},
    {"startswith", "prefix start= end=", startswith},
    {"strip", "chars=", strip_method},
    {"swapcase", "", swapcase},
    {"title", "", title},
    {"upper", "", upper_method},
    {"zfill", "width", zfill},
});

}  // namespace

std::span<const Filter> string_methods() { return kMethods; }

}  // namespace sluice::jinja
