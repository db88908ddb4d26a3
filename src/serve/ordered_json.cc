#include "src/serve/ordered_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/grammar/json_schema.h"

namespace sluice {
namespace {

// The end of the string that begins at `at`, behind its closing quote.
size_t end_of_string(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

// Returns the end of the value that begins at `at`, or before it in space.
size_t end_of_value(std::string_view text, size_t at) {
  for (int open = 0; at < text.size(); ++at) {
    if (text[at] == '"') {
      at = end_of_string(text, at) - 1;
    } else if (text[at] == '{' || text[at] == '[') {
      ++open;
    } else if (open == 0 && (text[at] == ',' || text[at] == '}' || text[at] == ']')) {
      return at;
    } else if (text[at] == '}' || text[at] == ']') {
      --open;
    }
  }
  return text.size();
}

bool is_string(std::string_view quoted, std::string_view text) {
  if (quoted.find('\\') == std::string_view::npos)
    return quoted.substr(1, quoted.size() - 2) == text;
  return Json::parse(quoted.begin(), quoted.end(), nullptr, false) == Json(text);
}

// Events of the parser.
class OrderedReader : public nlohmann::json_sax<Ordered> {
 public:
  Ordered take() { return std::move(root_); }

  bool null() override { return put({}); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t& written) override {
    if (written.find_first_of(".eE") != written.npos) return put(value);
    return put(Ordered::binary({written.begin(), written.end()}));
  }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }
  bool start_object(size_t) override { return open(Ordered::object()); }
  bool start_array(size_t) override { return open(Ordered::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const Ordered::exception&) override { return false; }

 private:
  Ordered& add(Ordered value) {
    if (open_.empty()) return root_ = std::move(value);
    Ordered& outer = *open_.back();
    if (outer.is_object()) return outer[key_] = std::move(value);
    return outer.emplace_back(std::move(value));
  }
  bool put(Ordered value) {
    add(std::move(value));
    return true;
  }
  bool open(Ordered value) {
    open_.push_back(&add(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Ordered root_;
  std::string key_;
  std::vector<Ordered*> open_;  // from the outermost one
};

bool has_digits(const Ordered& value) {
  return value.is_binary() || (value.is_structured() && std::ranges::any_of(value, has_digits));
}

void append(const Ordered& value, std::string& text) {
  if (value.is_binary()) {
    text.append(value.get_binary().begin(), value.get_binary().end());
  } else if (value.is_structured()) {
    text += value.is_object() ? '{' : '[';
    for (bool first = true; const auto& [key, member] : value.items()) {
      if (!std::exchange(first, false)) text += ',';
      if (value.is_object()) text += Ordered(key).dump() + ':';
      append(member, text);
    }
    text += value.is_object() ? '}' : ']';
  } else {
    text += value.dump();
  }
}

}  // namespace

std::string_view member_text(std::string_view object, std::string_view key) {
  size_t at = object.find('{');
  while (at < object.size()) {
    const size_t begin = object.find('"', at);
    if (begin == std::string_view::npos) break;
    const size_t end = end_of_string(object, begin);
    const size_t value = object.find(':', end);
    if (value == std::string_view::npos) break;
    at = end_of_value(object, value + 1);
    if (is_string(object.substr(begin, end - begin), key))
      return object.substr(value + 1, at - value - 1);
  }
  return {};
}

void refuse_large_objects(const Json& json, const std::string& where) {
  if (!grammar::has_large_object(json)) return;
  fail(ErrorKind::refused, "{}: an object in it has more than {} members", where,
       grammar::kMaxMembers);
}

Ordered parse_ordered(std::string_view text) {
  OrderedReader reader;
  return Ordered::sax_parse(text.begin(), text.end(), &reader)
             ? reader.take()
             : Ordered(Ordered::value_t::discarded);
}

std::string dump_ordered(const Ordered& value) {
  if (!has_digits(value)) return value.dump();
  std::string text;
  append(value, text);
  return text;
}

bool is_null(const Ordered& object, const char* key) {
  return !object.contains(key) || object.at(key).is_null();
}

std::string string_of(const Ordered& object, const char* key, const std::string& where) {
  if (!object.is_object() || is_null(object, key) || !object.at(key).is_string())
    fail(ErrorKind::refused, "{}: {} must be a string", where, key);
  return object.at(key).get<std::string>();
}

Ordered object_of(const Ordered& object, const char* key, const std::string& where) {
  if (is_null(object, key)) return Ordered::object();
  if (!object.at(key).is_object()) fail(ErrorKind::refused, "{}: {} must be an object", where, key);
  return object.at(key);
}

std::string text_of(const Ordered& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) fail(ErrorKind::refused, "{}: must be a text or a list of texts", where);
  std::string text;
  for (const Ordered& part : content) {
    const std::string type = string_of(part, "type", where);
    const bool refusal = type == "refusal";
    if (!refusal && !type.ends_with("text"))
      fail(ErrorKind::refused, "{}: parts of type {:?} are not supported; send text", where, type);
    if (!text.empty()) text += '\n';
    text += string_of(part, refusal ? "refusal" : "text", where);
  }
  return text;
}

Ordered content_of(const Ordered& content, const std::string& where) {
  std::string text = text_of(content, where);
  if (!content.is_array() || content.size() < 2) return text;
  Ordered parts = Ordered::array();
  for (const Ordered& part : content) {
    const bool refusal = part.at("type") == "refusal";
    parts.push_back({{"type", "text"}, {"text", part.at(refusal ? "refusal" : "text")}});
  }
  return parts;
}

}  // namespace sluice
