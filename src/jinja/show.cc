#include "src/jinja/show.h"

#include <array>
#include <charconv>
#include <cmath>

#include "src/jinja/characters.h"
#include "src/jinja/run.h"
#include "src/text/utf8.h"

namespace sluice::jinja {
namespace {

void append_character_repr(char32_t c, std::string_view bytes, char quote, Buffer& out) {
  if (c == '\n') return out.add("\\n");
  if (c == '\r') return out.add("\\r");
  if (c == '\t') return out.add("\\t");
  if (c == '\\') return out.add("\\\\");
  if (c == static_cast<unsigned char>(quote)) return out.add(std::string{'\\', quote});
  if (is_printable(c)) return out.add(bytes);
  const auto code = static_cast<uint32_t>(c);
  out.add(c < 0x100     ? fmt::format("\\x{:02x}", code)
          : c < 0x10000 ? fmt::format("\\u{:04x}", code)
                        : fmt::format("\\U{:08x}", code));
}

void append_string_repr(std::string_view text, Buffer& out) {
  const bool single = text.find('\'') != std::string_view::npos;
  const char quote = single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out.add(quote);
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = utf8_char_at(text, at);
    append_character_repr(c.code_point, text.substr(at, static_cast<size_t>(c.bytes)), quote, out);
    at += static_cast<size_t>(c.bytes);
  }
  out.add(quote);
}

void append_items(const Values& items, std::string_view open, std::string_view close, Buffer& out) {
  out.add(open);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.add(", ");
    append_repr(items[i], out);
  }
  out.add(close);
}

void append_dict(const Dict& dict, Buffer& out) {
  out.add('{');
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out.add(", ");
    append_repr(dict.entries[i].first, out);
    out.add(": ");
    append_repr(dict.entries[i].second, out);
  }
  out.add('}');
}

void append_range(const List& range, Buffer& out) {
  out.add(fmt::format("range({}, {}", range.bounds[0], range.bounds[1]));
  out.add(range.bounds[2] == 1 ? ")" : fmt::format(", {})", range.bounds[2]));
}

void append_instance(Instance& instance, Buffer& out) {
  const Changing* names = instance.names();
  if (names == nullptr) return out.add(instance.shown());
  out.add("<Namespace {");
  bool first = true;
  for (const auto& [name, value] : names->names) {
    if (!first) out.add(", ");
    first = false;
    append_string_repr(name, out);
    out.add(": ");
    append_repr(value, out);
  }
  out.add("}>");
}

}  // namespace

// The fewest digits that give the number back; an exponent below 1e-4 and from 1e16 on.
std::string show_real(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 40> text;
  char* end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::scientific)
          .ptr;
  std::string_view digits(text.data(), static_cast<size_t>(end - text.data()));
  const size_t e = digits.find('e');
  int exponent = 0;
  const char* number = digits.data() + e + (digits[e + 1] == '+' ? 2 : 1);
  std::from_chars(number, end, exponent);
  if (exponent >= -4 && exponent < 16) {
    end =
        std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed).ptr;
    std::string fixed(text.data(), end);
    return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
  }
  return fmt::format("{}e{}{:02}", digits.substr(0, e), exponent < 0 ? '-' : '+',
                     exponent < 0 ? -exponent : exponent);
}

void append_repr(const Value& value, Buffer& out) {
  Level level(out.meter());
  switch (value.kind()) {
    case Kind::undefined:
      return out.add("Undefined");
    case Kind::none:
      return out.add("None");
    case Kind::boolean:
      return out.add(value.truth() ? "True" : "False");
    case Kind::integer:
      return out.add(fmt::format("{}", value.integer()));
    case Kind::real:
      return out.add(value.digits() != nullptr ? *value.digits() : show_real(value.real()));
    case Kind::text:
      if (value.text_object().markup) out.add("Markup(");
      append_string_repr(value.text(), out);
      if (value.text_object().markup) out.add(")");
      return;
    case Kind::list:
      return append_items(value.items(), "[", "]", out);
    case Kind::tuple:
      return append_items(value.items(), "(", value.items().size() == 1 ? ",)" : ")", out);
    case Kind::range:
      return append_range(value.list(), out);
    case Kind::dict:
      return append_dict(value.dict(), out);
    case Kind::view:
      return append_items(value.items(), std::string(value.list().type) + "([", "])", out);
    case Kind::iterator:
      return out.add(fmt::format("<{} object>", value.iterator().type));
    case Kind::object:
      return append_instance(value.instance(), out);
  }
}

void append_text_of(const Value& value, Buffer& out) {
  if (value.is(Kind::text)) return out.add(value.text());
  if (!value.is(Kind::undefined)) append_repr(value, out);
}

std::string text_of(Meter& meter, const Value& value) {
  Buffer out(meter);
  append_text_of(value, out);
  return out.take();
}

std::string repr(Meter& meter, const Value& value) {
  Buffer out(meter);
  append_repr(value, out);
  return out.take();
}

std::string brief_repr(Meter& meter, const Value& value) {
  constexpr size_t kLongest = 80;
  std::string text = repr(meter, value);
  if (text.size() <= kLongest) return text;
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

}  // namespace sluice::jinja
