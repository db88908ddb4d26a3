#include <algorithm>

#include "src/jinja/numbers.h"
#include "src/jinja/operators.h"
#include "src/jinja/text_methods.h"

namespace sluice::jinja {
namespace {

bool equal_items(Meter& meter, const Values& a, const Values& b) {
  return std::ranges::equal(a, b,
                            [&](const Value& x, const Value& y) { return equal(meter, x, y); });
}

bool equal_dicts(Meter& meter, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  return std::ranges::all_of(a.entries, [&](const Dict::Entry& entry) {
    const Value* other = b.find(entry.first);
    return other != nullptr && equal(meter, entry.second, *other);
  });
}

bool equal_texts(Meter& meter, const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  meter.text_steps(a.size());
  return a == b;
}

// Numbers that have no order are not below each other.
bool unordered(const Value& a, const Value& b) {
  return a.is_number() && b.is_number() && (a.real() != a.real() || b.real() != b.real());
}

// Below, equal or above zero; Fault for types without order.
int order(Meter& meter, const Value& a, const Value& b, std::string_view sign) {
  Level level(meter);
  meter.step();
  if (a.is_number() && b.is_number()) return unordered(a, b) ? 0 : order_numbers(a, b);
  if (a.is(Kind::text) && b.is(Kind::text)) {
    meter.text_steps(std::min(a.text().size(), b.text().size()));
    return a.text().compare(b.text());
  }
  const bool lists = a.kind() == b.kind() && (a.is(Kind::list) || a.is(Kind::tuple));
  if (!lists) {
    need_defined(a);
    need_defined(b);
    refuse(FaultKind::value, "'{}' not supported between instances of '{}' and '{}'", sign,
           type_name(a), type_name(b));
  }
  const size_t common = std::min(a.items().size(), b.items().size());
  for (size_t i = 0; i < common; ++i) {
    if (!equal(meter, a.items()[i], b.items()[i]))
      return order(meter, a.items()[i], b.items()[i], sign);
  }
  return a.items().size() < b.items().size() ? -1 : a.items().size() > b.items().size() ? 1 : 0;
}

}  // namespace

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.integer() != 0;
    case Kind::real:
      return value.real() != 0;
    case Kind::text:
      return !value.text().empty();
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
    case Kind::view:
      return !value.items().empty();
    case Kind::dict:
      return !value.dict().entries.empty();
    case Kind::iterator:
    case Kind::object:
      return true;
  }
  return false;
}

bool equal(Meter& meter, const Value& a, const Value& b) {
  Level level(meter);
  meter.step();
  if (a.is_number() && b.is_number()) return !unordered(a, b) && order_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::text:
      return equal_texts(meter, a.text(), b.text());
    case Kind::dict:
      return equal_dicts(meter, a.dict(), b.dict());
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
    case Kind::view:
      return equal_items(meter, a.items(), b.items());
    default:
      return a.object() == b.object();
  }
}

bool less(Meter& meter, const Value& a, const Value& b) {
  return !unordered(a, b) && order(meter, a, b, "<") < 0;
}

bool less_equal(Meter& meter, const Value& a, const Value& b) {
  return !unordered(a, b) && order(meter, a, b, "<=") <= 0;
}

bool contains(Meter& meter, const Value& container, const Value& item) {
  if (container.is(Kind::text)) {
    if (!item.is(Kind::text)) {
      need_defined(item);
      refuse(FaultKind::value, "'in <string>' requires string as left operand, not {}",
             type_name(item));
    }
    meter.text_steps(container.text().size());
    return find_in(container.text(), item.text()) != std::string::npos;
  }
  if (container.is(Kind::dict)) {
    if (item.is(Kind::text)) meter.text_steps(item.text().size());
    return container.dict().find(item) != nullptr;
  }
  if (container.is_sequence() || container.is(Kind::view)) {
    return std::ranges::any_of(container.items(),
                               [&](const Value& each) { return equal(meter, each, item); });
  }
  if (container.is(Kind::iterator)) {
    while (std::optional<Value> each = container.iterator().take())
      if (equal(meter, *each, item)) return true;
    return false;
  }
  if (container.is(Kind::undefined)) return false;
  refuse(FaultKind::value, "argument of type '{}' is not iterable", type_name(container));
}

}  // namespace sluice::jinja
