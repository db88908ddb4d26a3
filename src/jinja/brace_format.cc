#include <algorithm>

#include "src/base/strings.h"
#include "src/jinja/characters.h"
#include "src/jinja/formatting.h"
#include "src/jinja/functions.h"
#include "src/jinja/number_format.h"
#include "src/jinja/numbers.h"
#include "src/jinja/run.h"
#include "src/jinja/show.h"
#include "src/text/utf8.h"

namespace sluice::jinja {
namespace {

bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

// [[fill]align][sign][#][0][width][grouping][.precision][type]
FormatSpec read_spec(std::string_view text) {
  FormatSpec spec;
  const std::string_view whole = text;
  const size_t first = text.empty() ? 0 : static_cast<size_t>(utf8_char_at(text, 0).bytes);
  if (text.size() > first && is_align(text[first])) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    text.remove_prefix(first + 1);
  } else if (!text.empty() && is_align(text[0])) {
    spec.align = text[0];
    text.remove_prefix(1);
  }
  auto take = [&](std::string_view choices) {
    if (text.empty() || choices.find(text[0]) == std::string_view::npos) return '\0';
    const char c = text[0];
    text.remove_prefix(1);
    return c;
  };
  auto take_number = [&](int64_t& value) {
    const size_t size = std::min(text.find_first_not_of("0123456789"), text.size());
    if (size == 0) return;
    value = size > 9 ? 1'000'000'000 : *parse_number<int64_t>(text.substr(0, size));
    text.remove_prefix(size);
  };
  if (char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != '\0';
  if (take("0") != '\0' && spec.align == '\0') {
    spec.align = '=';
    spec.fill = "0";
  }
  take_number(spec.width);
  spec.grouping = take(",_");
  if (take(".") != '\0') take_number(spec.precision);
  spec.type = take("bcdoxXneEfFgG%s");
  if (!text.empty()) refuse(FaultKind::value, "invalid format specifier '{}'", whole);
  return spec;
}

class Braces {
 public:
  Braces(Run& run, const Arguments& arguments, Buffer& out)
      : run_(run), arguments_(arguments), out_(out) {}

  void format(std::string_view text, int nested) {
    if (nested > 2) refuse(FaultKind::value, "max string recursion exceeded");
    for (size_t at = 0; at < text.size();) {
      const size_t brace = std::min(text.find_first_of("{}", at), text.size());
      if (brace > at) out_.add(text.substr(at, brace - at));
      if (brace == text.size()) return;
      if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {
        out_.add(text[brace]);
        at = brace + 2;
        continue;
      }
      if (text[brace] == '}') refuse(FaultKind::value, "single '}}' encountered in format string");
      const size_t end = field_end(text, brace + 1);
      field(text.substr(brace + 1, end - brace - 1), nested);
      at = end + 1;
    }
  }

 private:
  static size_t field_end(std::string_view text, size_t at) {
    for (int open = 1; at < text.size(); ++at) {
      open += text[at] == '{' ? 1 : text[at] == '}' ? -1 : 0;
      if (open == 0) return at;
    }
    refuse(FaultKind::value, "expected '}}' before end of string");
  }

  // name!conversion:spec
  void field(std::string_view text, int nested) {
    const size_t colon = std::min(text.find(':'), text.size());
    std::string_view name = text.substr(0, colon);
    char conversion = '\0';
    if (const size_t mark = name.find('!'); mark != std::string_view::npos) {
      if (name.size() != mark + 2) refuse(FaultKind::value, "bad conversion in a format");
      conversion = name[mark + 1];
      name = name.substr(0, mark);
    }
    Value value = find(name);
    Buffer spec(run_.meter());
    if (colon < text.size()) Braces(*this, spec).format(text.substr(colon + 1), nested + 1);
    if (conversion == 's') value = make_text(run_.meter(), text_of(run_.meter(), value));
    if (conversion == 'r' || conversion == 'a')
      value = make_text(run_.meter(), repr(run_.meter(), value));
    append(value, spec.text());
  }

  // Fields in a specification count on.
  Braces(Braces& outer, Buffer& out)
      : run_(outer.run_), arguments_(outer.arguments_), out_(out), next_(outer.next_) {}

  // first.attribute[key]...
  Value find(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = first(name.substr(0, end));
    name.remove_prefix(end);
    while (!name.empty()) {
      const bool item = name[0] == '[';
      size_t stop = std::min(name.find_first_of(item ? "]" : ".[", 1), name.size());
      const std::string_view key = name.substr(1, stop - 1);
      if (key.empty() || (item && stop == name.size()))
        refuse(FaultKind::value, "empty attribute in format string");
      const std::optional<int64_t> index = parse_number<int64_t>(key);
      value = !item   ? attribute_of(run_, value, key)
              : index ? item_of(run_, value, Value::integer(*index))
                      : item_of(run_, value, make_text(run_.meter(), std::string(key)));
      name.remove_prefix(item ? stop + 1 : stop);
    }
    return value;
  }

  Value first(std::string_view name) {
    std::optional<int64_t> index = parse_number<int64_t>(name);
    if (name.empty()) index = next_++;
    if (!index) {
      for (const auto& [key, value] : arguments_.named)
        if (key == name) return value;
      refuse(FaultKind::value, "format(): there is no '{}'", name);
    }
    if (*index < 0 || *index >= static_cast<int64_t>(arguments_.positional.size()))
      refuse(FaultKind::value, "format(): there is no argument {}", *index);
    return arguments_.positional[static_cast<size_t>(*index)];
  }

  [[noreturn]] static void no_code(const Value& value, const FormatSpec& spec) {
    refuse(FaultKind::value, "unknown format code '{}' for object of type '{}'", spec.type,
           type_name(value));
  }

  void append(const Value& value, std::string_view spec_text) {
    if (spec_text.empty()) return append_text_of(value, out_);
    const FormatSpec spec = read_spec(spec_text);
    const bool as_real =
        std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos && spec.type != '\0';
    const bool whole = is_whole(value);
    if (value.is(Kind::real) && !whole &&
        std::string_view("bcdosxX").find(spec.type) != std::string_view::npos)
      no_code(value, spec);
    if (value.is(Kind::real) ? !whole || as_real : whole && as_real)
      return pad(real_digits(value.real(), spec), spec, '>', out_);
    if (whole && !(value.is(Kind::boolean) && spec.type == '\0')) {
      if (spec.type == 's') no_code(value, spec);
      if (spec.precision >= 0)
        refuse(FaultKind::value, "precision is not allowed in the format of an integer");
      return pad(integer_digits(whole_of(run_.meter(), value), spec), spec, '>', out_);
    }
    if (value.is(Kind::text) || value.is(Kind::boolean)) {
      if (spec.type != '\0' && spec.type != 's') no_code(value, spec);
      std::string text = text_of(run_.meter(), value);
      if (spec.precision >= 0) text.resize(byte_of(text, static_cast<size_t>(spec.precision)));
      return pad(text, spec, '<', out_);
    }
    refuse(FaultKind::value, "unsupported format string for {}", type_name(value));
  }

  Run& run_;
  const Arguments& arguments_;
  Buffer& out_;
  int64_t own_ = 0;
  int64_t& next_ = own_;
};

}  // namespace

Value brace_format(Run& run, std::string_view format, const Arguments& arguments) {
  Buffer out(run.meter());
  Braces(run, arguments, out).format(format, 0);
  return make_text(run.meter(), out.take());
}

}  // namespace sluice::jinja
