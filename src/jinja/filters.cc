#include "src/jinja/filters.h"

#include <algorithm>
#include <charconv>

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
  std::string_view rest = path.text();
  for (bool more = true; more;) {
    const size_t end = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, end);
    int64_t index = 0;
    auto [stop, status] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number = !part.empty() && part[0] != '-' && status == std::errc{} &&
                        stop == part.data() + part.size();
    keys_.push_back(number ? Value::integer(index) : make_text(run_.meter(), std::string(part)));
    more = end < rest.size();
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

Value AttributePath::of(const Value& element) const {
  Value value = element;
  for (const Value& key : keys_) value = item_of(run_, value, key);
  return value;
}

Value without_case(Meter& meter, const Value& value) {
  return value.is(Kind::text) ? make_text(meter, lower(value.text())) : value;
}

}  // namespace sluice::jinja
