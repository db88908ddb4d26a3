#include <algorithm>
#include <array>

#include "src/jinja/characters.h"
#include "src/jinja/filters.h"
#include "src/jinja/formatting.h"
#include "src/jinja/operators.h"
#include "src/jinja/run.h"
#include "src/jinja/show.h"
#include "src/jinja/text_methods.h"
#include "src/jinja/word_wrap.h"
#include "src/text/utf8.h"

namespace sluice::jinja {
namespace {

Value text(const Bound& a, std::string bytes) { return make_text(a.meter(), std::move(bytes)); }
std::string as_text(const Value& value, const Bound& a) { return text_of(a.meter(), value); }

Value upper_filter(const Value& s, const Bound& a) { return text(a, upper(as_text(s, a))); }
Value lower_filter(const Value& s, const Bound& a) { return text(a, lower(as_text(s, a))); }
Value capitalize_filter(const Value& s, const Bound& a) {
  return text(a, capitalize(as_text(s, a)));
}

// Words begin behind white space, hyphens and opening brackets.
Value title_filter(const Value& s, const Bound& a) {
  const std::string source = as_text(s, a);
  std::string out;
  bool begins = true;
  for (size_t at = 0; at < source.size();) {
    const Utf8Char c = utf8_char_at(source, at);
    const std::string_view bytes =
        std::string_view(source).substr(at, static_cast<size_t>(c.bytes));
    at += bytes.size();
    const bool separates = is_space(c.code_point) || std::u32string_view(U"-({[<").find(
                                                         c.code_point) != std::u32string_view::npos;
    out += separates ? std::string(bytes) : begins ? upper(bytes) : lower(bytes);
    begins = separates;
  }
  return text(a, std::move(out));
}

Value trim_filter(const Value& s, const Bound& a) {
  const std::string source = as_text(s, a);
  if (a.is_none(0)) return text(a, std::string(strip(source)));
  const std::string characters = a.text(0, {});
  return text(a, std::string(strip_of(a.meter(), source, characters, Side::both)));
}

Value replace_filter(const Value& s, const Bound& a) {
  const int64_t count = a.is_none(2) ? -1 : a.integer(2, -1);
  return replace_all(a.meter(), as_text(s, a), as_text(a.value(0), a), as_text(a.value(1), a),
                     count);
}

Value indent_filter(const Value& s, const Bound& a) {
  const bool first = a.flag(1), blank = a.flag(2);
  const bool named = a.has(0) && a.value(0).is(Kind::text);
  if (!named && a.integer(0, 4) > 10'000) refuse(FaultKind::limit, "indent() by more than 10000");
  const std::string by =
      named ? a.value(0).text()
            : std::string(static_cast<size_t>(std::max<int64_t>(a.integer(0, 4), 0)), ' ');
  need_defined(s);
  if (!s.is(Kind::text)) refuse(FaultKind::value, "indent() needs a string, not {}", type_name(s));
  const std::string source = s.text() + "\n";
  Buffer out(a.meter());
  bool begun = false;
  for (std::string_view rest = source; !rest.empty();) {
    const std::string_view line = take_line(rest);
    if (begun) out.add('\n');
    if (begun ? blank || !line.empty() : first) out.add(by);
    out.add(line);
    begun = true;
  }
  return make_text(a.meter(), out.take());
}

Value truncate_filter(const Value& s, const Bound& a) {
  if (!s.is(Kind::text)) {
    if (static_cast<int64_t>(length(s)) <= a.integer(0, 255)) return s;
    refuse(FaultKind::value, "truncate() needs a string, not {}", type_name(s));
  }
  const std::string& source = s.text();
  const int64_t length = a.integer(0, 255);
  const std::string end = a.text(2, "...");
  const int64_t leeway = a.is_none(3) ? 5 : a.integer(3, 5);
  const auto end_size = static_cast<int64_t>(character_count(end));
  if (length < end_size) refuse(FaultKind::value, "truncate(): expected length >= {}", end_size);
  a.meter().text_steps(source.size());
  if (leeway < 0) refuse(FaultKind::value, "truncate(): expected leeway >= 0");
  if (static_cast<int64_t>(character_count(source)) - leeway <= length) return text(a, source);
  std::string cut = source.substr(0, byte_of(source, static_cast<size_t>(length - end_size)));
  if (!a.flag(1)) {
    if (const size_t space = cut.rfind(' '); space != std::string::npos) cut.resize(space);
  }
  return text(a, cut + end);
}

Value center_filter(const Value& s, const Bound& a) {
  return justify(a.meter(), as_text(s, a), a.integer(0, 80), " ", Side::both);
}

Value wordwrap_filter(const Value& s, const Bound& a) {
  need_defined(s);
  if (!s.is(Kind::text))
    refuse(FaultKind::value, "wordwrap() needs a string, not {}", type_name(s));
  const WrapStyle style{.width = a.integer(0, 79),
                        .break_long_words = a.flag(1, true),
                        .break_on_hyphens = a.flag(3, true)};
  const std::string between = a.is_none(2) ? "\n" : a.text(2, "\n");
  if (style.width < 1) refuse(FaultKind::value, "wordwrap(): the width must be above 0");
  Buffer out(a.meter());
  bool first = true;
  for (std::string_view rest = s.text(); !rest.empty();) {
    const std::string_view line = take_line(rest, false);
    if (!std::exchange(first, false)) out.add(between);
    bool begun = false;
    for (const std::string& part : wrap_words(a.meter(), line, style)) {
      if (std::exchange(begun, true)) out.add(between);
      out.add(part);
    }
  }
  return make_text(a.meter(), out.take());
}

Value wordcount_filter(const Value& s, const Bound& a) {
  int64_t words = 0;
  bool inside = false;
  all_characters(as_text(s, a), [&](char32_t c) {
    const bool word = is_alnum(c) || c == '_';
    words += word && !inside ? 1 : 0;
    inside = word;
    return true;
  });
  return Value::integer(words);
}

Value format_filter(const Value& s, const Bound& a) {
  const Arguments& rest = a.rest();
  if (!rest.named.empty() && !rest.positional.empty())
    refuse(FaultKind::value, "format() cannot take named and other values at once");
  const Value format = s.is(Kind::text) ? s : text(a, as_text(s, a));
  if (rest.named.empty())
    return percent_format(a.meter(), format, make_tuple(a.meter(), rest.positional));
  std::vector<Dict::Entry> entries;
  for (const auto& [name, value] : rest.named)
    entries.emplace_back(make_text(a.meter(), name), value);
  return percent_format(a.meter(), format, make_dict(a.meter(), std::move(entries)));
}

Value escape_filter(const Value& s, const Bound& a) { return escape(a.meter(), s); }
Value force_escape_filter(const Value& s, const Bound& a) {
  return escape(a.meter(), text(a, as_text(s, a)));
}
Value safe_filter(const Value& s, const Bound& a) {
  return make_text(a.meter(), as_text(s, a), true);
}

// Attributes of HTML, but for those that are none or undefined.
Value xmlattr_filter(const Value& s, const Bound& a) {
  need_defined(s);
  if (!s.is(Kind::dict))
    refuse(FaultKind::value, "xmlattr() needs a mapping, not {}", type_name(s));
  Buffer out(a.meter());
  for (const auto& [key, value] : s.dict().entries) {
    if (value.is(Kind::none) || value.is(Kind::undefined)) continue;
    if (!key.is(Kind::text) || key.text().find_first_of(" \t\n\r\f\v/>=") != std::string::npos)
      refuse(FaultKind::value, "xmlattr(): {} is not the name of an attribute",
             brief_repr(a.meter(), key));
    if (!out.text().empty() || a.flag(0, true)) out.add(' ');
    out.add(escape(a.meter(), key).text() + "=\"" + escape(a.meter(), value).text() + "\"");
  }
  return make_text(a.meter(), out.take());
}

// `also`: what stays as it is; a space there becomes a plus.
void append_quoted(const std::string& source, char also, Buffer& out) {
  for (char c : source) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte < 0x80 && (std::isalnum(byte) != 0 || c == also ||
                                       std::string_view("_.-~").find(c) != std::string_view::npos);
    if (plain) {
      out.add(c == ' ' ? '+' : c);
    } else {
      out.add(fmt::format("%{:02X}", byte));
    }
  }
}

Value urlencode_filter(const Value& s, const Bound& a) {
  Buffer out(a.meter());
  const bool pairs =
      s.is(Kind::dict) || s.is_sequence() || s.is(Kind::view) || s.is(Kind::iterator);
  if (!pairs) {
    append_quoted(as_text(s, a), '/', out);
    return make_text(a.meter(), out.take());
  }
  std::vector<Dict::Entry> entries;
  if (s.is(Kind::dict)) entries = s.dict().entries;
  for (const Value& pair : s.is(Kind::dict) ? Values{} : iterate(a.meter(), s)) {
    Values parts = iterate(a.meter(), pair);
    if (parts.size() != 2) refuse(FaultKind::value, "urlencode() needs pairs of key and value");
    entries.emplace_back(std::move(parts[0]), std::move(parts[1]));
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out.add('&');
    append_quoted(as_text(entries[i].first, a), ' ', out);
    out.add('=');
    append_quoted(as_text(entries[i].second, a), ' ', out);
  }
  return make_text(a.meter(), out.take());
}

// Characters for what escape() made of them, and for the other names that are usual.
std::string unescape(const std::string& source) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kNames{
      {{"&lt;", "<"},
       {"&gt;", ">"},
       {"&amp;", "&"},
       {"&quot;", "\""},
       {"&apos;", "'"},
       {"&#39;", "'"},
       {"&#34;", "\""},
       {"&nbsp;", "\u00a0"}}};
  std::string text;
  for (size_t at = 0; at < source.size();) {
    const size_t mark = std::min(source.find('&', at), source.size());
    text.append(source, at, mark - at);
    at = mark;
    if (at == source.size()) break;
    const auto* name = std::ranges::find_if(
        kNames, [&](const auto& n) { return source.compare(at, n.first.size(), n.first) == 0; });
    text += name == kNames.end() ? "&" : name->second;
    at += name == kNames.end() ? 1 : name->first.size();
  }
  return text;
}

// The text without what `open` begins and `close` ends. What has no end is kept.
std::string without(std::string_view source, std::string_view open, std::string_view close) {
  std::string kept;
  while (true) {
    const size_t start = source.find(open);
    const size_t end = start == source.npos ? start : source.find(close, start);
    if (end == source.npos) return kept += source;
    kept += source.substr(0, start);
    source.remove_prefix(end + close.size());
  }
}

// Returns the text without comments and tags, and with single spaces.
Value striptags_filter(const Value& s, const Bound& a) {
  const std::string source = as_text(s, a);
  // Comments first, as there may be tags in them.
  const std::string kept = without(without(source, "<!--", "-->"), "<", ">");
  Buffer out(a.meter());
  for (std::string_view rest = strip(kept); !rest.empty(); rest = strip_left(rest)) {
    const std::string_view word = first_word(rest);
    if (!out.text().empty()) out.add(' ');
    out.add(word);
    rest.remove_prefix(word.size());
  }
  return make_text(a.meter(), unescape(out.text()));
}

constexpr std::array kTextFilters = std::to_array<Filter>({
    {"upper", "", upper_filter},
    {"lower", "", lower_filter},
    {"capitalize", "", capitalize_filter},
    {"title", "", title_filter},
    {"trim", "chars=", trim_filter},
    {"replace", "old new count=", replace_filter},
    {"indent", "width= first= blank=", indent_filter},
    {"truncate", "length= killwords= end= leeway=", truncate_filter},
    {"center", "width=", center_filter},
    {"wordcount", "", wordcount_filter},
    {"wordwrap", "width= break_long_words= wrapstring= break_on_hyphens=", wordwrap_filter},
    {"format", "*", format_filter},
    {"escape", "", escape_filter},
    {"e", "", escape_filter},
    {"forceescape", "", force_escape_filter},
    {"safe", "", safe_filter},
    {"urlencode", "", urlencode_filter},
    {"striptags", "", striptags_filter},
    {"xmlattr", "autospace=", xmlattr_filter},
});

}  // namespace

std::span<const Filter> text_filters() { return kTextFilters; }

}  // namespace sluice::jinja
