#include "src/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "src/base/check.h"
#include "src/jinja/numbers.h"
#include "src/text/utf8.h"

namespace sluice::jinja {
namespace {

uint64_t bytes_of(const Values& items) { return items.capacity() * sizeof(Value); }

int height_of(const Values& items) {
  int height = 0;
  for (const Value& item : items) height = std::max(height, item.height());
  return height + 1;
}

int height_of(const std::vector<Dict::Entry>& entries) {
  int height = 0;
  for (const auto& [key, value] : entries)
    height = std::max({height, key.height(), value.height()});
  return height + 1;
}

// Bytes that a shared pointer and the allocator add to an object.
constexpr uint64_t kOverhead = 48;

template <class T>
const T& as(const Object* object) {
  check(object != nullptr, "a value has the kind that is asked for");
  return static_cast<const T&>(*object);
}

// Tuples are small where they are keys, so that comparing keys takes no time.
void check_tuple_key(const Value& key) {
  constexpr size_t kMostItems = 16;
  constexpr int kMostHeight = 3;
  if (key.items().size() > kMostItems || key.height() > kMostHeight)
    refuse(FaultKind::limit, "a tuple of more than {} items is used as a key", kMostItems);
}

int rank_of_key(const Value& key) {
  if (key.is(Kind::tuple)) check_tuple_key(key);
  switch (key.kind()) {
    case Kind::none:
      return 0;
    case Kind::boolean:
    case Kind::integer:
    case Kind::real:
      return 1;
    case Kind::text:
      return 2;
    case Kind::tuple:
      return 3;
    case Kind::undefined:
      return 4;
    case Kind::object:
    case Kind::range:
    case Kind::iterator:
      return 5;
    case Kind::list:
    case Kind::dict:
    case Kind::view:
      break;
  }
  refuse(FaultKind::value, "unhashable type: '{}'", type_name(key));
}

int compare_tuples(const Value& a, const Value& b) {
  const size_t common = std::min(a.items().size(), b.items().size());
  for (size_t i = 0; i < common; ++i) {
    if (int order = compare_keys(a.items()[i], b.items()[i]); order != 0) return order;
  }
  return a.items().size() < b.items().size() ? -1 : a.items().size() > b.items().size() ? 1 : 0;
}

template <class T>
int order_of(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

int compare_numbers(const Value& a, const Value& b) {
  const bool a_nan = std::isnan(a.real()), b_nan = std::isnan(b.real());
  if (a_nan || b_nan) return order_of(a_nan, b_nan);
  return order_numbers(a, b);
}

}  // namespace

Object::Object(Meter& meter, uint64_t bytes, int height) : charge_(meter), height_(height) {
  if (height > kMaxHeight)
    refuse(FaultKind::limit, "nests values more than {} levels deep", kMaxHeight);
  charge_.add(bytes + kOverhead);
}

const std::string* Value::digits() const {
  return kind_ == Kind::real && object_ ? &as<Text>(object_.get()).bytes : nullptr;
}

const std::string& Value::text() const { return as<Text>(object_.get()).bytes; }
const Text& Value::text_object() const { return as<Text>(object_.get()); }
const Values& Value::items() const { return as<List>(object_.get()).items; }
const List& Value::list() const { return as<List>(object_.get()); }
const Dict& Value::dict() const { return as<Dict>(object_.get()); }
Iterator& Value::iterator() const { return const_cast<Iterator&>(as<Iterator>(object_.get())); }
Instance& Value::instance() const { return const_cast<Instance&>(as<Instance>(object_.get())); }

Text::Text(Meter& meter, std::string text, bool is_markup)
    : Object(meter, sizeof(Text) + text.capacity()),
      bytes(std::move(text)),
      characters(character_count(bytes)),
      markup(is_markup) {
  meter.text_steps(bytes.size());
}

List::List(Meter& meter, Values values)
    : Object(meter, sizeof(List) + bytes_of(values), height_of(values)), items(std::move(values)) {
  meter.step(1 + static_cast<int64_t>(items.size() / 4));
}

bool Dict::Less::operator()(const Value& a, const Value& b) const { return compare_keys(a, b) < 0; }
bool Dict::Less::operator()(const Value& a, std::string_view b) const {
  return a.is(Kind::text) ? a.text() < b : rank_of_key(a) < 2;
}
bool Dict::Less::operator()(std::string_view a, const Value& b) const {
  return b.is(Kind::text) ? a < b.text() : rank_of_key(b) > 2;
}

Dict::Dict(Meter& meter, std::vector<Entry> pairs)
    : Object(meter,
             sizeof(Dict) + pairs.size() * (sizeof(Entry) + sizeof(Value) + sizeof(size_t) + 48),
             height_of(pairs)) {
  meter.step(1 + static_cast<int64_t>(pairs.size()));
  for (auto& [key, value] : pairs) {
    rank_of_key(key);
    if (key.is(Kind::text)) meter.text_steps(4 * key.text().size());
    auto [at, fresh] = index_.try_emplace(key, entries.size());
    if (fresh) {
      entries.emplace_back(std::move(key), std::move(value));
    } else {
      entries[at->second].second = std::move(value);
    }
  }
}

const Value* Dict::find(const Value& key) const {
  rank_of_key(key);
  auto at = index_.find(key);
  return at == index_.end() ? nullptr : &entries[at->second].second;
}

const Value* Dict::find(std::string_view key) const {
  auto at = index_.find(key);
  return at == index_.end() ? nullptr : &entries[at->second].second;
}

Iterator::Iterator(Meter& meter, Values values, std::string_view type_name)
    : Object(meter, sizeof(Iterator) + bytes_of(values), height_of(values)),
      items(std::move(values)),
      type(type_name) {
  meter.step(1 + static_cast<int64_t>(items.size() / 4));
}

std::optional<Value> Iterator::take() {
  if (next == items.size()) {
    if (fault) throw Fault(*fault);
    return std::nullopt;
  }
  return items[next++];
}

Value make_text(Meter& meter, std::string text, bool markup) {
  return {Kind::text, std::make_shared<Text>(meter, std::move(text), markup)};
}

Value make_list(Meter& meter, Values items) {
  return {Kind::list, std::make_shared<List>(meter, std::move(items))};
}

Value make_tuple(Meter& meter, Values items) {
  return {Kind::tuple, std::make_shared<List>(meter, std::move(items))};
}

Value make_view(Meter& meter, Values items, std::string_view type) {
  auto view = std::make_shared<List>(meter, std::move(items));
  view->type = type;
  return {Kind::view, std::move(view)};
}

// Limits the length of a range, as transformers' sandbox does.
Value make_range(Meter& meter, int64_t start, int64_t stop, int64_t step) {
  constexpr int64_t kLongest = 100'000;
  if (step == 0) refuse(FaultKind::value, "range() arg 3 must not be zero");
  const double distance = static_cast<double>(stop) - static_cast<double>(start);
  const double count = std::ceil(distance / static_cast<double>(step));
  if (count > static_cast<double>(kLongest))
    refuse(FaultKind::limit, "range() has more than {} numbers", kLongest);
  Values items;
  items.reserve(count > 0 ? static_cast<size_t>(count) : 0);
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i)
    items.push_back(Value::integer(start + i * step));
  auto range = std::make_shared<List>(meter, std::move(items));
  range->bounds[0] = start;
  range->bounds[1] = stop;
  range->bounds[2] = step;
  return {Kind::range, std::move(range)};
}

Value make_dict(Meter& meter, std::vector<Dict::Entry> entries) {
  return {Kind::dict, std::make_shared<Dict>(meter, std::move(entries))};
}

Value make_iterator(Meter& meter, Values items, std::string_view type) {
  return {Kind::iterator, std::make_shared<Iterator>(meter, std::move(items), type)};
}

Value make_missing(Meter& meter, std::string why, FaultKind kind) {
  return {Kind::undefined, std::make_shared<Missing>(meter, std::move(why), kind)};
}

void fail_undefined(const Value& value) {
  if (value.object() == nullptr) refuse(FaultKind::undefined, "an undefined value is used");
  const auto& missing = as<Missing>(value.object());
  throw Fault(missing.kind, missing.message);
}

void need_defined(const Value& value) {
  if (value.is(Kind::undefined)) fail_undefined(value);
}

int compare_keys(const Value& a, const Value& b) {
  const int rank = rank_of_key(a), other = rank_of_key(b);
  if (rank != other) return order_of(rank, other);
  switch (rank) {
    case 1:
      return compare_numbers(a, b);
    case 2:
      return a.text().compare(b.text());
    case 3:
      return compare_tuples(a, b);
    case 5:
      return order_of(a.object(), b.object());
    default:
      return 0;
  }
}

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return value.digits() == nullptr ? "float" : "int";
    case Kind::text:
      return value.text_object().markup ? "Markup" : "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::range:
      return "range";
    case Kind::dict:
      return "dict";
    case Kind::view:
      return std::string(value.list().type);
    case Kind::iterator:
      return std::string(value.iterator().type);
    case Kind::object:
      return value.instance().type();
  }
  return "object";
}

}  // namespace sluice::jinja
