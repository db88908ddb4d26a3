#include <cmath>
#include <limits>
#include <vector>

#include "src/base/json.h"
#include "src/jinja/template.h"

namespace sluice::jinja {
namespace {

// Fault where the meter has no room.
Value converted(Meter& meter, const OrderedJson& json, std::string_view where) {
  auto large = [&](double value, std::string digits) {
    return Value::large_integer(value, make_text(meter, std::move(digits)));
  };
  switch (json.type()) {
    case OrderedJson::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case OrderedJson::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case OrderedJson::value_t::number_unsigned:
      if (json.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()})
        return Value::integer(json.get<int64_t>());
      return large(json.get<double>(), json.dump());
    case OrderedJson::value_t::number_float:
      if (std::isfinite(json.get<double>())) return Value::real(json.get<double>());
      fail(ErrorKind::refused, "{}: NaN and Infinity are not JSON", where);
    case OrderedJson::value_t::binary:
      return large(round_integers(json).get<double>(), dump_ordered(json));
    case OrderedJson::value_t::string:
      return make_text(meter, json.get<std::string>());
    case OrderedJson::value_t::array: {
      Values items;
      for (const OrderedJson& item : json) items.push_back(converted(meter, item, where));
      return make_list(meter, std::move(items));
    }
    case OrderedJson::value_t::object: {
      std::vector<Dict::Entry> entries;
      for (const auto& [key, value] : json.items())
        entries.emplace_back(make_text(meter, key), converted(meter, value, where));
      return make_dict(meter, std::move(entries));
    }
    default:
      return Value::none();
  }
}

}  // namespace

Value value_of(Meter& meter, const OrderedJson& json, std::string_view where) {
  try {
    return converted(meter, json, where);
  } catch (const Fault& fault) {
    fail(ErrorKind::refused, "{}: {}", where, fault.what());
  }
}

Value read_json(Meter& meter, std::string_view text, std::string_view where) {
  std::optional<std::string> repeated;  // its last value counts, as in Python
  return value_of(meter, parse_ordered(text, where, &repeated), where);
}

}  // namespace sluice::jinja
