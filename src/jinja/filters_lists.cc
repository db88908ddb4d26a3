#include <algorithm>
#include <array>

#include "src/base/strings.h"
#include "src/jinja/filters.h"
#include "src/jinja/operators.h"
#include "src/jinja/run.h"
#include "src/jinja/show.h"
#include "src/text/utf8.h"

namespace sluice::jinja {
namespace {

Value length_filter(const Value& s, const Bound&) {
  return Value::integer(static_cast<int64_t>(length(s)));
}

Value list_filter(const Value& s, const Bound& a) {
  return make_list(a.meter(), iterate(a.meter(), s));
}

Value first_filter(const Value& s, const Bound& a) {
  if (s.is(Kind::iterator)) {
    if (std::optional<Value> first = s.iterator().take()) return *std::move(first);
  } else if (Values items = iterate(a.meter(), s); !items.empty()) {
    return items.front();
  }
  return make_missing(a.meter(), "no first item, the sequence is empty");
}

Value last_filter(const Value& s, const Bound& a) {
  if (s.is(Kind::iterator)) refuse(FaultKind::value, "'{}' object is not reversible", type_name(s));
  Values items = iterate(a.meter(), s);
  if (items.empty()) return make_missing(a.meter(), "no last item, the sequence is empty");
  return items.back();
}

Value join_filter(const Value& s, const Bound& a) {
  const std::string separator = a.has(0) ? text_of(a.meter(), a.value(0)) : "";
  const AttributePath path(a, a.value(1));
  Buffer out(a.meter());
  bool first = true;
  for (const Value& item : iterate(a.meter(), s)) {
    if (!first) out.add(separator);
    first = false;
    append_text_of(path.of(item), out);
  }
  return make_text(a.meter(), out.take());
}

Value reverse_filter(const Value& s, const Bound& a) {
  if (s.is(Kind::text)) return slice(a.meter(), s, {.start = {}, .stop = {}, .step = -1});
  if (s.is(Kind::iterator)) refuse(FaultKind::value, "argument must be iterable");
  Values items = iterate(a.meter(), s);
  std::ranges::reverse(items);
  return make_iterator(a.meter(), std::move(items), "reversed");
}

Value sum_filter(const Value& s, const Bound& a) {
  const AttributePath path(a, a.value(0));
  Value sum = a.has(1) ? a.value(1) : Value::integer(0);
  if (sum.is(Kind::text)) refuse(FaultKind::value, "sum() can't sum strings; use join");
  for (const Value& item : iterate(a.meter(), s))
    sum = compute(a.meter(), Arithmetic::add, sum, path.of(item));
  return sum;
}

struct Sorted {
  Value key;
  Value item;
};

void sort(const Bound& a, std::vector<Sorted>& items, bool reverse) {
  merge_sort(a.meter(), items, [&](const Sorted& x, const Sorted& y) {
    return reverse ? less(a.meter(), y.key, x.key) : less(a.meter(), x.key, y.key);
  });
}

Values items_of(std::vector<Sorted> sorted) {
  Values items;
  items.reserve(sorted.size());
  for (Sorted& each : sorted) items.push_back(std::move(each.item));
  return items;
}

// "a,b.c": several attributes, one after the other.
std::vector<AttributePath> paths_of(const Bound& a, const Value& attribute) {
  std::vector<AttributePath> paths;
  if (!attribute.is(Kind::text)) {
    paths.emplace_back(a, attribute);
    return paths;
  }
  for (const std::string_view part : split_text(attribute.text(), ','))
    paths.emplace_back(a, make_text(a.meter(), std::string(part)));
  return paths;
}

Value sort_filter(const Value& s, const Bound& a) {
  const std::vector<AttributePath> paths = paths_of(a, a.value(2));
  const bool with_case = a.flag(1);
  std::vector<Sorted> sorted;
  for (const Value& item : iterate(a.meter(), s)) {
    Values keys;
    for (const AttributePath& path : paths) {
      const Value key = path.of(item);
      keys.push_back(with_case ? key : without_case(a.meter(), key));
    }
    sorted.push_back({make_list(a.meter(), std::move(keys)), item});
  }
  sort(a, sorted, a.flag(0));
  return make_list(a.meter(), items_of(std::move(sorted)));
}

Value dictsort_filter(const Value& s, const Bound& a) {
  need_defined(s);
  if (!s.is(Kind::dict))
    refuse(FaultKind::value, "dictsort() needs a mapping, not {}", type_name(s));
  const std::string by = a.text(1, "key");
  if (by != "key" && by != "value")
    refuse(FaultKind::value, "dictsort() can only sort by \"key\" or \"value\"");
  std::vector<Sorted> sorted;
  for (const auto& [key, value] : s.dict().entries) {
    const Value& chosen = by == "key" ? key : value;
    sorted.push_back({a.flag(0) ? chosen : without_case(a.meter(), chosen),
                      make_tuple(a.meter(), {key, value})});
  }
  sort(a, sorted, a.flag(2));
  return make_list(a.meter(), items_of(std::move(sorted)));
}

void take_unique(const Value& s, const Bound& a, Values& unique) {
  const AttributePath path(a, a.value(1));
  const bool with_case = a.flag(0);
  std::vector<Dict::Entry> seen;
  for (const Value& item : iterate(a.meter(), s)) {
    const Value key = path.of(item);
    seen.emplace_back(with_case ? key : without_case(a.meter(), key), item);
  }
  // Filled backwards: a dict keeps the last item of a key, but the first one counts.
  std::vector<Dict::Entry> positions;
  for (size_t i = seen.size(); i-- > 0;)
    positions.emplace_back(seen[i].first, Value::integer(static_cast<int64_t>(i)));
  const Value first = make_dict(a.meter(), std::move(positions));
  for (size_t i = 0; i < seen.size(); ++i) {
    if (first.dict().find(seen[i].first)->integer() == static_cast<int64_t>(i))
      unique.push_back(seen[i].second);
  }
}

Value unique_filter(const Value& s, const Bound& a) {
  return make_lazy(a.meter(), [&](Values& unique) { take_unique(s, a, unique); });
}

Value groupby_filter(const Value& s, const Bound& a) {
  const AttributePath path(a, a.value(0));
  const bool with_case = a.flag(2);
  std::vector<Sorted> sorted;
  std::vector<Value> shown;
  for (const Value& item : iterate(a.meter(), s)) {
    const Value key = path.of(item, a.has(1) ? a.value(1) : Value::none());
    const Value pair = make_tuple(a.meter(), {key, item});
    sorted.push_back({with_case ? key : without_case(a.meter(), key), pair});
  }
  sort(a, sorted, false);
  Values groups;
  for (size_t begin = 0; begin < sorted.size();) {
    size_t end = begin;
    Values members;
    while (end < sorted.size() && equal(a.meter(), sorted[begin].key, sorted[end].key))
      members.push_back(sorted[end++].item.items()[1]);
    if (end == begin) ++end;  // a key that does not equal itself
    auto group = std::make_shared<List>(
        a.meter(), Values{sorted[begin].item.items()[0], make_list(a.meter(), std::move(members))});
    group->group = true;
    groups.emplace_back(Kind::tuple, std::move(group));
    begin = end;
  }
  return make_list(a.meter(), std::move(groups));
}

// Lists of `size` each; the last one is filled up where there is something to fill it with.
void take_batches(const Value& s, const Bound& a, Values& batches) {
  const int64_t size = a.integer(0, 1);
  if (size < 1 || size > 1'000'000) refuse(FaultKind::value, "batch() of {}", size);
  Values batch;
  auto close = [&] { batches.push_back(make_list(a.meter(), std::exchange(batch, {}))); };
  for (const Value& item : iterate(a.meter(), s)) {
    if (static_cast<int64_t>(batch.size()) == size) close();
    batch.push_back(item);
  }
  if (!batch.empty()) {
    while (!a.is_none(1) && static_cast<int64_t>(batch.size()) < size) {
      a.meter().step();
      batch.push_back(a.value(1));
    }
    close();
  }
}

Value batch_filter(const Value& s, const Bound& a) {
  return make_lazy(a.meter(), [&](Values& batches) { take_batches(s, a, batches); });
}

// Makes so many lists; the first ones are longer by one if it does not come out even.
void take_slices(const Value& s, const Bound& a, Values& slices) {
  const int64_t count = a.integer(0, 1);
  if (count < 1 || count > 1'000'000) refuse(FaultKind::value, "slice() into {}", count);
  const Values items = iterate(a.meter(), s);
  const auto size = static_cast<int64_t>(items.size());
  for (int64_t i = 0, at = 0; i < count; ++i) {
    const int64_t length = size / count + (i < size % count ? 1 : 0);
    Values part(items.begin() + at, items.begin() + at + length);
    if (!a.is_none(1) && i >= size % count) part.push_back(a.value(1));
    slices.push_back(make_list(a.meter(), std::move(part)));
    at += length;
  }
}

Value slice_filter(const Value& s, const Bound& a) {
  return make_lazy(a.meter(), [&](Values& slices) { take_slices(s, a, slices); });
}

Value extreme(const Value& s, const Bound& a, bool largest) {
  const AttributePath path(a, a.value(1));
  std::optional<Sorted> best;
  for (const Value& item : iterate(a.meter(), s)) {
    const Value found = path.of(item);
    const Value key = a.flag(0) ? found : without_case(a.meter(), found);
    const bool better =
        !best || (largest ? less(a.meter(), best->key, key) : less(a.meter(), key, best->key));
    if (better) best = Sorted{key, item};
  }
  return best ? best->item : make_missing(a.meter(), "no item, the sequence is empty");
}

Value min_filter(const Value& s, const Bound& a) { return extreme(s, a, false); }
Value max_filter(const Value& s, const Bound& a) { return extreme(s, a, true); }

Value items_filter(const Value& s, const Bound& a) {
  return make_lazy(a.meter(), [&](Values& pairs) {
    if (s.is(Kind::undefined)) return;
    if (!s.is(Kind::dict))
      refuse(FaultKind::value, "can only get item pairs from a mapping, not {}", type_name(s));
    for (const auto& [key, value] : s.dict().entries)
      pairs.push_back(make_tuple(a.meter(), {key, value}));
  });
}

constexpr std::array kListFilters = std::to_array<Filter>({
    {"length", "", length_filter},
    {"count", "", length_filter},
    {"list", "", list_filter},
    {"first", "", first_filter},
    {"last", "", last_filter},
    {"join", "d= attribute=", join_filter},
    {"reverse", "", reverse_filter},
    {"sum", "attribute= start=", sum_filter},
    {"sort", "reverse= case_sensitive= attribute=", sort_filter},
    {"dictsort", "case_sensitive= by= reverse=", dictsort_filter},
    {"unique", "case_sensitive= attribute=", unique_filter},
    {"groupby", "attribute default= case_sensitive=", groupby_filter},
    {"batch", "linecount fill_with=", batch_filter},
    {"slice", "slices fill_with=", slice_filter},
    {"min", "case_sensitive= attribute=", min_filter},
    {"max", "case_sensitive= attribute=", max_filter},
    {"items", "", items_filter},
});

}  // namespace

std::span<const Filter> list_filters() { return kListFilters; }

}  // namespace sluice::jinja
