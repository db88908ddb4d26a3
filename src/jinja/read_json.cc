#include <limits>
#include <vector>

#include "src/base/json.h"
#include "src/jinja/template.h"

namespace sluice::jinja {
namespace {

constexpr int kDeepest = 64;

// Events of the parser, in which objects keep their order.
class Reader : public nlohmann::json_sax<Json> {
 public:
  explicit Reader(Meter& meter) : meter_(meter) {}
  Value take() { return std::move(result_); }

  bool null() override { return put(Value::none()); }
  bool boolean(bool value) override { return put(Value::boolean(value)); }
  bool number_integer(number_integer_t value) override { return put(Value::integer(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (value > kMost) return large(static_cast<double>(value), fmt::format("{}", value));
    return put(Value::integer(static_cast<int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == text.npos) return large(value, text);
    return put(Value::real(value));
  }
  bool string(string_t& value) override { return put(make_text(meter_, std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool key(string_t& value) override {
    open_.back().key = make_text(meter_, std::move(value));
    return true;
  }
  bool start_object(size_t) override { return open(true); }
  bool start_array(size_t) override { return open(false); }
  bool end_object() override {
    std::vector<Dict::Entry> entries = std::move(open_.back().entries);
    open_.pop_back();
    return put(make_dict(meter_, std::move(entries)));
  }
  bool end_array() override {
    Values items = std::move(open_.back().items);
    open_.pop_back();
    return put(make_list(meter_, std::move(items)));
  }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  struct Open {
    bool object = false;
    Value key;
    std::vector<Dict::Entry> entries;
    Values items;
  };

  bool large(double value, std::string digits) {
    return put(Value::large_integer(value, make_text(meter_, std::move(digits))));
  }

  bool open(bool object) {
    if (open_.size() >= kDeepest) return false;
    open_.push_back({.object = object, .key = {}, .entries = {}, .items = {}});
    return true;
  }

  bool put(Value value) {
    if (open_.empty()) {
      result_ = std::move(value);
    } else if (open_.back().object) {
      open_.back().entries.emplace_back(std::move(open_.back().key), std::move(value));
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  Meter& meter_;
  std::vector<Open> open_;
  Value result_;
};

}  // namespace

Value read_json(Meter& meter, std::string_view text, std::string_view where) {
  Reader reader(meter);
  try {
    const bool read = text.find('\0') == std::string_view::npos &&
                      Json::sax_parse(text.begin(), text.end(), &reader);
    if (read) return reader.take();
  } catch (const Fault& fault) {
    fail(ErrorKind::refused, "{}: {}", where, fault.what());
  }
  parse_json(text, where, kDeepest);  // throws the same again, in words for the user
  fail(ErrorKind::refused, "{}: NaN and Infinity are not JSON", where);
}

}  // namespace sluice::jinja
