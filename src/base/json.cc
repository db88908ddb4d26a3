#include "src/base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "src/base/error.h"

namespace sluice {
namespace {

// Python's numbers that are not finite. For each stands a string with a NUL, which no text file
// holds, while the text is parsed.
struct NotFinite {
  std::string_view literal;
  double value;
};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::array<NotFinite, 3> kNotFinite{{{"NaN", std::numeric_limits<double>::quiet_NaN()},
                                               {"Infinity", kInfinity},
                                               {"-Infinity", -kInfinity}}};

// Returns the entry of the string's number, or null.
const NotFinite* not_finite(std::string_view text) {
  if (!text.starts_with('\0')) return nullptr;
  const auto* found = std::ranges::find(kNotFinite, text.substr(1), &NotFinite::literal);
  return found == kNotFinite.end() ? nullptr : found;
}

// The end of the string that begins at `at`, behind its closing quote.
size_t end_of_string(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

size_t count_members(const Json& json) {
  if (!json.is_structured()) return 0;
  size_t members = json.is_object() ? json.size() : 0;
  for (const Json& value : json) members += count_members(value);
  return members;
}

// Each has a colon behind it, which is in no text.
size_t count_keys(std::string_view text) {
  size_t keys = 0;
  for (size_t at = 0; at < text.size(); at = text[at] == '"' ? end_of_string(text, at) : at + 1)
    keys += text[at] == ':' ? 1 : 0;
  return keys;
}

// Base of the handlers of a parser's events. (The library's own way to look at them while it builds
// a document takes time that grows with the square of a list of objects.)
class Events : public nlohmann::json_sax<Json> {
 public:
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // is in no text
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const Json::exception& fault) override {
    fault_ = fault.what();
    return false;
  }
  const std::string& fault() const { return fault_; }

 protected:
  virtual bool put(Json value) = 0;
  virtual bool open(Json value) = 0;
  virtual bool close() = 0;

 private:
  std::string fault_;
};

class Builder : public Events {
 public:
  Builder(std::string_view where, int max_depth) : where_(where), max_depth_(max_depth) {}
  Json take() { return std::move(root_); }

  bool key(string_t& name) override {
    if (not_finite(name) != nullptr)
      fail(ErrorKind::refused, "{}: not valid JSON: a key is not a string", where_);
    member_ = &(*open_.back())[std::move(name)];
    return true;
  }

 protected:
  bool put(Json value) override {
    if (const auto* text = value.get_ptr<const std::string*>()) {
      if (const NotFinite* number = not_finite(*text)) value = number->value;
    }
    place(std::move(value));
    return true;
  }
  bool open(Json value) override {
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() override {
    open_.pop_back();
    return true;
  }

 private:
  // Returns the value's place. It stays valid until its parent gets another value, which is after
  // the value's end.
  Json* place(Json value) {
    if (std::ssize(open_) > max_depth_)
      fail(ErrorKind::refused, "{}: nested too deeply (more than {} levels)", where_, max_depth_);
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_array()) return &open_.back()->emplace_back(std::move(value));
    return &(*member_ = std::move(value));
  }

  std::string_view where_;
  int max_depth_;
  Json root_;
  std::vector<Json*> open_;  // objects and lists that have begun
  Json* member_ = nullptr;   // of the innermost object, whose value comes next
};

class KeyCheck : public Events {
 public:
  explicit KeyCheck(std::string_view where) : where_(where) {}

  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second)
      fail(ErrorKind::refused, "{}: the key {:?} is there twice", where_, name);
    return true;
  }

 protected:
  bool put(Json) override { return true; }
  bool open(Json) override {
    keys_.emplace_back();
    return true;
  }
  bool close() override {
    keys_.pop_back();
    return true;
  }

 private:
  std::string_view where_;
  std::vector<std::set<std::string>> keys_;  // of what has begun
};

}  // namespace

std::optional<std::string> json_of_python(std::string_view text) {
  std::string json;
  size_t done = 0;  // bytes of the text that are in `json`
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '"') {
      at = end_of_string(text, at);
      continue;
    }
    std::string_view rest = text.substr(at);
    const auto* number = std::ranges::find_if(
        kNotFinite, [&](const NotFinite& n) { return rest.starts_with(n.literal); });
    if (number == kNotFinite.end()) {
      ++at;
      continue;
    }
    json += text.substr(done, at - done);
    json += fmt::format(R"("\u0000{}")", number->literal);
    done = at += number->literal.size();
  }
  if (done == 0) return std::nullopt;
  return json += text.substr(done);
}

Json parse_json(std::string_view text, std::string_view where, int max_depth) {
  const std::optional<std::string> proper = json_of_python(text);
  if (proper) text = *proper;
  // The library takes a NUL for the end of its input.
  if (text.find('\0') != std::string_view::npos) {
    fail(ErrorKind::refused, "{}: not valid JSON: it holds a NUL", where);
  }
  Builder builder(where, max_depth);
  if (Json::sax_parse(text.begin(), text.end(), &builder)) return builder.take();
  refuse_json(text, where, builder.fault());
}

void refuse_json(std::string_view text, std::string_view where, std::string reason) {
  if (text.empty()) fail(ErrorKind::refused, "{}: not valid JSON: the file is empty", where);
  if (auto colon = reason.find("] "); colon != std::string::npos) reason = reason.substr(colon + 2);
  // The library quotes the offending text; a binary file would put junk on the terminal.
  for (char& c : reason) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  }
  if (reason.size() > 160) reason = reason.substr(0, 160) + "...";
  fail(ErrorKind::refused, "{}: not valid JSON: {}", where, reason);
}

void refuse_repeated_keys(std::string_view text, const Json& json, std::string_view where) {
  if (count_keys(text) == count_members(json)) return;
  const std::optional<std::string> proper = json_of_python(text);
  if (proper) text = *proper;
  KeyCheck check(where);
  Json::sax_parse(text.begin(), text.end(), &check);
}

JsonFields::JsonFields(const Json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object.is_object()) fail(ErrorKind::refused, "{}: must be a JSON object", where_);
}

bool JsonFields::has(const char* key) const {
  auto it = object_.find(key);
  return it != object_.end() && !it->is_null();
}

bool JsonFields::is_null(const char* key) const {
  auto it = object_.find(key);
  return it != object_.end() && it->is_null();
}

const Json& JsonFields::raw(const char* key) const {
  auto it = object_.find(key);
  if (it == object_.end()) fail(ErrorKind::refused, "{}: {} is missing", where_, key);
  return *it;
}

void JsonFields::refuse_null(std::initializer_list<const char*> keys) const {
  for (const char* key : keys) {
    if (is_null(key))
      fail(ErrorKind::refused, "{}: {} is null, which has no meaning there", where_, key);
  }
}

int64_t JsonFields::integer(const char* key, int64_t low, int64_t high) const {
  const Json& v = raw(key);
  if (!v.is_number_integer()) fail(ErrorKind::refused, "{}: {} must be an integer", where_, key);
  bool fits = !v.is_number_unsigned() || v.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
  if (!fits || v.get<int64_t>() < low || v.get<int64_t>() > high) {
    fail(ErrorKind::refused, "{}: {} is {}, but must lie between {} and {}", where_, key, v.dump(),
         low, high);
  }
  return v.get<int64_t>();
}

int64_t JsonFields::integer_or(const char* key, int64_t low, int64_t high, int64_t fallback) const {
  if (has(key)) return integer(key, low, high);
  if (fallback < low || fallback > high) {
    fail(ErrorKind::refused,
         "{}: {} is missing, and what is taken for it, {}, does not lie between {} and {}", where_,
         key, fallback, low, high);
  }
  return fallback;
}

double JsonFields::number(const char* key) const {
  const Json& v = raw(key);
  if (!v.is_number() || !std::isfinite(v.get<double>())) {
    fail(ErrorKind::refused, "{}: {} must be a finite number", where_, key);
  }
  return v.get<double>();
}

double JsonFields::number_or(const char* key, double fallback) const {
  return has(key) ? number(key) : fallback;
}

bool JsonFields::boolean_or(const char* key, bool fallback) const {
  if (!has(key)) return fallback;
  const Json& v = raw(key);
  if (!v.is_boolean()) fail(ErrorKind::refused, "{}: {} must be true or false", where_, key);
  return v.get<bool>();
}

std::string JsonFields::string(const char* key) const {
  const Json& v = raw(key);
  if (!v.is_string()) fail(ErrorKind::refused, "{}: {} must be a string", where_, key);
  return v.get<std::string>();
}

std::string JsonFields::string_or(const char* key, std::string fallback) const {
  return has(key) ? string(key) : std::move(fallback);
}

}  // namespace sluice
