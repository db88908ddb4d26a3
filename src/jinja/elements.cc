#include <algorithm>

#include "src/jinja/characters.h"
#include "src/jinja/operators.h"
#include "src/jinja/show.h"
#include "src/text/utf8.h"

namespace sluice::jinja {
namespace {

Values characters_of(Meter& meter, std::string_view text) {
  Values items;
  Charge charge(meter);
  for (size_t at = 0; at < text.size();) {
    const auto bytes = static_cast<size_t>(utf8_char_at(text, at).bytes);
    charge.add(sizeof(Value));
    items.push_back(make_text(meter, std::string(text.substr(at, bytes))));
    at += bytes;
  }
  return items;
}

std::string character_at(const Text& text, size_t index) {
  if (text.ascii()) return text.bytes.substr(index, 1);
  const size_t at = byte_of(text.bytes, index);
  return text.bytes.substr(at, static_cast<size_t>(utf8_char_at(text.bytes, at).bytes));
}

// The elements that a slice takes: `count` from `start` on, each `step` from the last.
struct Picked {
  int64_t start = 0;
  int64_t count = 0;
  int64_t step = 1;
};

Picked pick(const SliceBounds& bounds, int64_t size) {
  const int64_t step = bounds.step.value_or(1);
  if (step == 0) refuse(FaultKind::value, "slice step cannot be zero");
  const int64_t lowest = step < 0 ? -1 : 0;
  const int64_t highest = step < 0 ? size - 1 : size;
  auto within = [&](std::optional<int64_t> bound, int64_t fallback) {
    if (!bound) return fallback;
    if (*bound < 0) return *bound < -size ? lowest : std::max(*bound + size, lowest);
    return std::min(*bound, highest);
  };
  const int64_t start = within(bounds.start, step < 0 ? highest : lowest);
  const int64_t stop = within(bounds.stop, step < 0 ? lowest : highest);
  const int64_t distance = step < 0 ? start - stop : stop - start;
  if (distance <= 0) return {start, 0, step};
  const uint64_t stride = step < 0 ? 0 - static_cast<uint64_t>(step) : static_cast<uint64_t>(step);
  return {start, static_cast<int64_t>((static_cast<uint64_t>(distance) - 1) / stride) + 1, step};
}

Value slice_text(Meter& meter, const Value& value, const SliceBounds& bounds) {
  const Text& text = value.text_object();
  const Picked picked = pick(bounds, static_cast<int64_t>(text.characters));
  const auto start = static_cast<size_t>(std::max<int64_t>(picked.start, 0));
  const auto count = static_cast<size_t>(picked.count);
  meter.text_steps(text.bytes.size());
  std::string out;
  if (picked.step == 1) {
    const size_t begin = text.ascii() ? start : byte_of(text.bytes, start);
    const std::string_view rest = std::string_view(text.bytes).substr(begin);
    out = rest.substr(0, text.ascii() ? count : byte_of(rest, count));
  } else if (count > 0) {
    Charge charge(meter);
    charge.add(5 * text.bytes.size());
    const std::u32string points = code_points(text.bytes);
    for (size_t i = 0; i < count; ++i) {
      const int64_t at = picked.start + static_cast<int64_t>(i) * picked.step;
      append_utf8(points[static_cast<size_t>(at)], out);
    }
  }
  return make_text(meter, std::move(out), text.markup);
}

std::optional<size_t> index_of(const Value& key, size_t size) {
  if (!key.is_integer()) return std::nullopt;
  const int64_t at = key.integer() < 0 ? key.integer() + static_cast<int64_t>(size) : key.integer();
  if (at < 0 || at >= static_cast<int64_t>(size)) return std::nullopt;
  return static_cast<size_t>(at);
}

}  // namespace

size_t length(const Value& value) {
  switch (value.kind()) {
    case Kind::text:
      return value.text_object().characters;
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
    case Kind::view:
      return value.items().size();
    case Kind::dict:
      return value.dict().entries.size();
    case Kind::undefined:
      return 0;
    default:
      refuse(FaultKind::value, "object of type '{}' has no len()", type_name(value));
  }
}

Values iterate(Meter& meter, const Value& value) {
  switch (value.kind()) {
    case Kind::text:
      return characters_of(meter, value.text());
    case Kind::list:
    case Kind::tuple:
    case Kind::range:
    case Kind::view:
      meter.step(1 + static_cast<int64_t>(value.items().size() / 4));
      return value.items();
    case Kind::dict: {
      Values keys;
      meter.step(static_cast<int64_t>(value.dict().entries.size()));
      for (const auto& [key, ignored] : value.dict().entries) keys.push_back(key);
      return keys;
    }
    case Kind::iterator: {
      Values rest;
      while (std::optional<Value> each = value.iterator().take()) {
        meter.step();
        rest.push_back(*std::move(each));
      }
      return rest;
    }
    case Kind::undefined:
      return {};
    default:
      refuse(FaultKind::value, "'{}' object is not iterable", type_name(value));
  }
}

Value slice(Meter& meter, const Value& value, const SliceBounds& bounds) {
  need_defined(value);
  if (value.is(Kind::text)) return slice_text(meter, value, bounds);
  if (!value.is_sequence())
    refuse(FaultKind::value, "'{}' object cannot be sliced", type_name(value));
  const Picked picked = pick(bounds, static_cast<int64_t>(value.items().size()));
  Charge charge(meter);
  charge.add(static_cast<uint64_t>(picked.count) * sizeof(Value));
  Values items;
  items.reserve(static_cast<size_t>(picked.count));
  for (int64_t i = 0; i < picked.count; ++i)
    items.push_back(value.items()[static_cast<size_t>(picked.start + i * picked.step)]);
  return value.is(Kind::tuple) ? make_tuple(meter, std::move(items))
                               : make_list(meter, std::move(items));
}

std::optional<Value> element(Meter& meter, const Value& value, const Value& key) {
  if (value.is(Kind::dict)) {
    if (key.is(Kind::list) || key.is(Kind::dict) || key.is(Kind::view)) return std::nullopt;
    if (key.is(Kind::text)) meter.text_steps(4 * key.text().size());
    const Value* found = value.dict().find(key);
    if (found == nullptr) return std::nullopt;
    return *found;
  }
  if (value.is(Kind::text)) {
    const Text& text = value.text_object();
    const std::optional<size_t> at = index_of(key, text.characters);
    if (!at) return std::nullopt;
    if (!text.ascii()) meter.text_steps(text.bytes.size());
    return make_text(meter, character_at(text, *at), text.markup);
  }
  if (!value.is_sequence()) return std::nullopt;
  const std::optional<size_t> at = index_of(key, value.items().size());
  if (!at) return std::nullopt;
  return value.items()[*at];
}

Value escape(Meter& meter, const Value& value) {
  if (value.is(Kind::text) && value.text_object().markup) return value;
  const std::string text = text_of(meter, value);
  Buffer out(meter);
  for (char c : text) {
    switch (c) {
      case '&':
        out.add("&amp;");
        break;
      case '<':
        out.add("&lt;");
        break;
      case '>':
        out.add("&gt;");
        break;
      case '\'':
        out.add("&#39;");
        break;
      case '"':
        out.add("&#34;");
        break;
      default:
        out.add(c);
    }
  }
  return make_text(meter, out.take(), true);
}

}  // namespace sluice::jinja
