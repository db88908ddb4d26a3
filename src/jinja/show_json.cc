#include <cmath>

#include "src/jinja/operators.h"
#include "src/jinja/show.h"
#include "src/text/utf8.h"

namespace sluice::jinja {
namespace {

class JsonText {
 public:
  JsonText(const JsonStyle& style, Buffer& out) : style_(style), out_(out) {}

  void value(const Value& value) {
    Level level(out_.meter());
    switch (value.kind()) {
      case Kind::none:
        return out_.add("null");
      case Kind::boolean:
        return out_.add(value.truth() ? "true" : "false");
      case Kind::integer:
        return out_.add(fmt::format("{}", value.integer()));
      case Kind::real:
        return out_.add(value.digits() != nullptr ? *value.digits() : real(value.real()));
      case Kind::text:
        return text(value.text());
      case Kind::list:
      case Kind::tuple:
        return list(value.items());
      case Kind::dict:
        return dict(value.dict());
      default:
        refuse(FaultKind::value, "Object of type {} is not JSON serializable", type_name(value));
    }
  }

 private:
  static std::string real(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return show_real(value);
  }

  void text(std::string_view text) {
    out_.add('"');
    size_t plain = 0;  // begin of what has not been written
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = utf8_char_at(text, at);
      const std::string escape = escaped(c.code_point);
      if (!escape.empty()) {
        if (at > plain) out_.add(text.substr(plain, at - plain));
        out_.add(escape);
        plain = at + static_cast<size_t>(c.bytes);
      }
      at += static_cast<size_t>(c.bytes);
    }
    if (text.size() > plain) out_.add(text.substr(plain));
    out_.add('"');
  }

  // Empty: as it is.
  std::string escaped(char32_t c) const {
    switch (c) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\f':
        return "\\f";
      case '\b':
        return "\\b";
      default:
        break;
    }
    const auto code = static_cast<uint32_t>(c);
    if (code >= 0x20 && (!style_.ascii || code < 0x7F)) return {};
    if (code < 0x10000) return fmt::format("\\u{:04x}", code);
    const uint32_t rest = code - 0x10000;
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
  }

  void break_line() {
    if (!style_.indent) return;
    out_.add('\n');
    out_.repeat(*style_.indent, static_cast<uint64_t>(depth_));
  }

  void list(const Values& items) {
    if (items.empty()) return out_.add("[]");
    out_.add('[');
    ++depth_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.add(style_.item_separator);
      break_line();
      value(items[i]);
    }
    --depth_;
    break_line();
    out_.add(']');
  }

  void dict(const Dict& dict) {
    if (dict.entries.empty()) return out_.add("{}");
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      merge_sort(out_.meter(), entries, [&](const Dict::Entry* a, const Dict::Entry* b) {
        return less(out_.meter(), a->first, b->first);
      });
    }
    out_.add('{');
    ++depth_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.add(style_.item_separator);
      break_line();
      key(entries[i]->first);
      out_.add(style_.key_separator);
      value(entries[i]->second);
    }
    --depth_;
    break_line();
    out_.add('}');
  }

  void key(const Value& key) {
    switch (key.kind()) {
      case Kind::text:
        return text(key.text());
      case Kind::none:
      case Kind::boolean:
      case Kind::integer:
      case Kind::real:
        out_.add('"');
        value(key);
        return out_.add('"');
      default:
        refuse(FaultKind::value, "keys must be str, int, float, bool or None, not {}",
               type_name(key));
    }
  }

  const JsonStyle& style_;
  Buffer& out_;
  int depth_ = 0;
};

}  // namespace

void append_json(const Value& value, const JsonStyle& style, Buffer& out) {
  JsonText(style, out).value(value);
}

}  // namespace sluice::jinja
