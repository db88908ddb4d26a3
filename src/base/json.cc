#include "src/base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/base/error.h"

namespace sluice {
namespace {

// Python's numbers that are not finite. For each stands a string with a NUL, which texts with such
// numbers hold in no other way, while the text is parsed.
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

// The double that the digits of an integer stand for.
double rounded(const OrderedJson::binary_t& digits) {
  return std::strtod(std::string(digits.begin(), digits.end()).c_str(), nullptr);
}

// Makes a document of a parser's events. (The library's own way to look at them while it builds one
// takes time that grows with the square of a list of objects.)
template <class SomeJson>
class Builder : public nlohmann::json_sax<SomeJson> {
 public:
  static constexpr bool kOrdered = std::is_same_v<SomeJson, OrderedJson>;

  // `python`: strings may stand for numbers that are not finite.
  Builder(std::string_view where, int max_depth, bool python)
      : where_(where), max_depth_(max_depth), python_(python) {}
  SomeJson take() { return std::move(root_); }
  const std::string& fault() const { return fault_; }
  const std::optional<std::string>& repeated() const { return repeated_; }

  bool number_integer(int64_t value) override { return put(value); }
  bool number_unsigned(uint64_t value) override { return put(value); }
  bool number_float(double value, const std::string& text) override {
    if (kOrdered && text.find_first_of(".eE") == text.npos)
      return put(SomeJson::binary({text.begin(), text.end()}));
    return put(value);
  }
  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool string(std::string& text) override {
    if (const NotFinite* number = python_ ? not_finite(text) : nullptr) return put(number->value);
    return put(std::move(text));
  }
  bool binary(typename SomeJson::binary_t&) override { return false; }  // is in no text
  bool start_object(size_t) override { return open(SomeJson::object()); }
  bool start_array(size_t) override { return open(SomeJson::array()); }
  bool end_array() override { return close(); }
  bool end_object() override {
    if constexpr (kOrdered) find_repeated(*open_.back());
    return close();
  }
  bool key(std::string& name) override {
    if (python_ && not_finite(name) != nullptr)
      fail(ErrorKind::refused, "{}: not valid JSON: a key is not a string", where_);
    if constexpr (kOrdered) {  // without a search, which takes time that grows with the object
      auto& members = open_.back()->template get_ref<typename SomeJson::object_t&>();
      member_ = &members.emplace_back(std::move(name), nullptr).second;
    } else {
      member_ = &(*open_.back())[std::move(name)];
    }
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& fault) override {
    fault_ = fault.what();
    return false;
  }

 private:
  bool put(SomeJson value) {
    place(std::move(value));
    return true;
  }
  bool open(SomeJson value) {
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  void find_repeated(const SomeJson& object) {
    if (repeated_ || object.size() < 2) return;
    std::vector<std::string_view> keys;
    for (const auto& member : object.items()) keys.emplace_back(member.key());
    std::ranges::sort(keys);
    const auto twice = std::ranges::adjacent_find(keys);
    if (twice != keys.end()) repeated_ = *twice;
  }

  // Returns the value's place. It stays valid until its parent gets another value, which is after
  // the value's end.
  SomeJson* place(SomeJson value) {
    if (std::ssize(open_) > max_depth_)
      fail(ErrorKind::refused, "{}: nested too deeply (more than {} levels)", where_, max_depth_);
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_array()) return &open_.back()->emplace_back(std::move(value));
    return &(*member_ = std::move(value));
  }

  std::string_view where_;
  int max_depth_;
  bool python_;
  std::string fault_;
  std::optional<std::string> repeated_;  // a key of an object that has ended
  SomeJson root_;
  std::vector<SomeJson*> open_;  // objects and lists that have begun
  SomeJson* member_ = nullptr;   // of the innermost object, whose value comes next
};

template <class SomeJson>
SomeJson parse(std::string_view text, std::string_view where, int max_depth,
               std::optional<std::string>& repeated) {
  const std::optional<std::string> proper = json_of_python(text);
  if (proper) text = *proper;
  // The library takes a NUL for the end of its input.
  if (text.find('\0') != std::string_view::npos) {
    fail(ErrorKind::refused, "{}: not valid JSON: it holds a NUL", where);
  }
  Builder<SomeJson> builder(where, max_depth, proper.has_value());
  if (!SomeJson::sax_parse(text.begin(), text.end(), &builder))
    refuse_json(text, where, builder.fault());
  repeated = builder.repeated();
  return builder.take();
}

bool has_digits(const OrderedJson& json) {
  return json.is_binary() || (json.is_structured() && std::ranges::any_of(json, has_digits));
}

void append(const OrderedJson& json, std::string& text) {
  if (json.is_binary()) {
    text.append(json.get_binary().begin(), json.get_binary().end());
  } else if (json.is_structured()) {
    text += json.is_object() ? '{' : '[';
    for (bool first = true; const auto& [key, member] : json.items()) {
      if (!std::exchange(first, false)) text += ',';
      if (json.is_object()) text += OrderedJson(key).dump() + ':';
      append(member, text);
    }
    text += json.is_object() ? '}' : ']';
  } else {
    text += json.dump();
  }
}

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
  std::optional<std::string> none;
  return parse<Json>(text, where, max_depth, none);
}

OrderedJson parse_ordered(std::string_view text, std::string_view where,
                          std::optional<std::string>* repeated) {
  constexpr int kMostLevels = 64;
  std::optional<std::string> found;
  OrderedJson json = parse<OrderedJson>(text, where, kMostLevels, found);
  if (repeated != nullptr) {
    *repeated = std::move(found);
  } else if (found) {
    refuse_repeated_key(*found, where);
  }
  return json;
}

void refuse_repeated_key(std::string_view key, std::string_view where) {
  fail(ErrorKind::refused, "{}: the key {:?} is there twice", where, key);
}

std::string dump_ordered(const OrderedJson& json) {
  if (!has_digits(json)) return json.dump();
  std::string text;
  append(json, text);
  return text;
}

OrderedJson round_integers(OrderedJson json) {
  if (json.is_binary()) return rounded(json.get_binary());
  if (json.is_structured())
    for (OrderedJson& inner : json) inner = round_integers(std::move(inner));
  return json;
}

void refuse_json(std::string_view text, std::string_view where, std::string reason) {
  if (text.empty()) fail(ErrorKind::refused, "{}: not valid JSON: it is empty", where);
  if (auto colon = reason.find("] "); colon != std::string::npos) reason = reason.substr(colon + 2);
  // The library quotes the offending text; a binary file would put junk on the terminal.
  for (char& c : reason) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  }
  if (reason.size() > 160) reason = reason.substr(0, 160) + "...";
  fail(ErrorKind::refused, "{}: not valid JSON: {}", where, reason);
}

template <class SomeJson>
BasicFields<SomeJson>::BasicFields(const SomeJson& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object.is_object()) fail(ErrorKind::refused, "{}: must be a JSON object", where_);
}

template <class SomeJson>
bool BasicFields<SomeJson>::has(const char* key) const {
  auto it = object_.find(key);
  return it != object_.end() && !it->is_null();
}

template <class SomeJson>
bool BasicFields<SomeJson>::is_null(const char* key) const {
  auto it = object_.find(key);
  return it != object_.end() && it->is_null();
}

template <class SomeJson>
const SomeJson& BasicFields<SomeJson>::raw(const char* key) const {
  auto it = object_.find(key);
  if (it == object_.end()) fail(ErrorKind::refused, "{}: {} is missing", where_, key);
  return *it;
}

template <class SomeJson>
void BasicFields<SomeJson>::refuse_null(std::initializer_list<const char*> keys) const {
  for (const char* key : keys) {
    if (is_null(key))
      fail(ErrorKind::refused, "{}: {} is null, which has no meaning there", where_, key);
  }
}

template <class SomeJson>
int64_t BasicFields<SomeJson>::integer(const char* key, int64_t low, int64_t high) const {
  const SomeJson& v = raw(key);
  if (!v.is_number_integer()) fail(ErrorKind::refused, "{}: {} must be an integer", where_, key);
  bool fits =
      !v.is_number_unsigned() || v.template get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
  if (!fits || v.template get<int64_t>() < low || v.template get<int64_t>() > high) {
    fail(ErrorKind::refused, "{}: {} is {}, but must lie between {} and {}", where_, key, v.dump(),
         low, high);
  }
  return v.template get<int64_t>();
}

template <class SomeJson>
int64_t BasicFields<SomeJson>::integer_or(const char* key, int64_t low, int64_t high,
                                          int64_t fallback) const {
  if (has(key)) return integer(key, low, high);
  if (fallback < low || fallback > high) {
    fail(ErrorKind::refused,
         "{}: {} is missing, and what is taken for it, {}, does not lie between {} and {}", where_,
         key, fallback, low, high);
  }
  return fallback;
}

template <class SomeJson>
double BasicFields<SomeJson>::number(const char* key) const {
  const SomeJson& v = raw(key);
  double number = std::numeric_limits<double>::quiet_NaN();
  if (v.is_binary()) number = rounded(v.get_binary());
  if (v.is_number()) number = v.template get<double>();
  if (!std::isfinite(number))
    fail(ErrorKind::refused, "{}: {} must be a finite number", where_, key);
  return number;
}

template <class SomeJson>
double BasicFields<SomeJson>::number_or(const char* key, double fallback) const {
  return has(key) ? number(key) : fallback;
}

template <class SomeJson>
bool BasicFields<SomeJson>::boolean_or(const char* key, bool fallback) const {
  if (!has(key)) return fallback;
  const SomeJson& v = raw(key);
  if (!v.is_boolean()) fail(ErrorKind::refused, "{}: {} must be true or false", where_, key);
  return v.template get<bool>();
}

template <class SomeJson>
std::string BasicFields<SomeJson>::string(const char* key) const {
  const SomeJson& v = raw(key);
  if (!v.is_string()) fail(ErrorKind::refused, "{}: {} must be a string", where_, key);
  return v.template get<std::string>();
}

template <class SomeJson>
std::string BasicFields<SomeJson>::string_or(const char* key, std::string fallback) const {
  return has(key) ? string(key) : std::move(fallback);
}

template class BasicFields<Json>;
template class BasicFields<OrderedJson>;

}  // namespace sluice
