#include "src/jinja/filters.h"

#include <algorithm>

#include "src/base/strings.h"
#include "src/jinja/characters.h"
#include "src/jinja/run.h"

namespace sluice::jinja {

const Filter* find_filter(std::string_view name) {
  for (std::span<const Filter> filters :
       {text_filters(), list_filters(), choice_filters(), value_filters()}) {
    auto found = std::ranges::find(filters, name, &Filter::name);
    if (found != filters.end()) return &*found;
  }
  return nullptr;
}

AttributePath::AttributePath(const Bound& arguments, const Value& path) : run_(arguments.run()) {
  if (path.is(Kind::none) || path.is(Kind::undefined)) return;
  if (!path.is(Kind::text)) {
    keys_.push_back(path);
    return;
  }
  for (const std::string_view part : split_text(path.text(), '.')) {
    const auto index = part.starts_with('-') ? std::nullopt : parse_number<int64_t>(part);
    keys_.push_back(index ? Value::integer(*index) : make_text(run_.meter(), std::string(part)));
  }
}

Value AttributePath::of(const Value& element, const Value& standard) const {
  Value value = element;
  for (const Value& key : keys_) {
    value = item_of(run_, value, key);
    if (value.is(Kind::undefined) && !standard.is(Kind::none)) value = standard;
  }
  return value;
}

Value without_case(Meter& meter, const Value& value) {
  return value.is(Kind::text) ? make_text(meter, lower(value.text())) : value;
}

}  // namespace sluice::jinja
