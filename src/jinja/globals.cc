// The functions that templates have beside their variables.
#include <algorithm>
#include <array>
#include <ctime>

#include "src/jinja/function_object.h"
#include "src/jinja/functions.h"
#include "src/jinja/show.h"
#include "src/text/utf8.h"

namespace sluice::jinja {
namespace {

int64_t whole(const Value& value) {
  need_defined(value);
  if (!value.is_integer())
    refuse(FaultKind::value, "range() needs integers, not {}", type_name(value));
  return value.integer();
}

Value range(Run& run, const Arguments& arguments) {
  const Bound a(run, "range", "start stop= step=", arguments);
  const int64_t first = whole(a.value(0));
  if (!a.has(1)) return make_range(run.meter(), 0, first, 1);
  return make_range(run.meter(), first, whole(a.value(1)), a.integer(2, 1));
}

// dict(mapping or pairs, name=value, ...)
Value dict(Run& run, const Arguments& arguments) {
  std::vector<Dict::Entry> entries;
  if (arguments.positional.size() > 1)
    refuse(FaultKind::value, "dict() takes one mapping and named values");
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional.front();
    if (from.is(Kind::dict)) {
      entries = from.dict().entries;
    } else {
      for (const Value& pair : iterate(run.meter(), from)) {
        Values parts = iterate(run.meter(), pair);
        if (parts.size() != 2) refuse(FaultKind::value, "dict() needs pairs of key and value");
        entries.emplace_back(std::move(parts[0]), std::move(parts[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.named)
    entries.emplace_back(make_text(run.meter(), name), value);
  return make_dict(run.meter(), std::move(entries));
}

Value new_namespace(Run& run, const Arguments& arguments) {
  const Value values = dict(run, arguments);
  Names names;
  for (const auto& [key, value] : values.dict().entries) {
    if (!key.is(Kind::text) || key.text().starts_with('_')) {
      refuse(FaultKind::security, "a namespace takes no attribute {}",
             brief_repr(run.meter(), key));
    }
    names.emplace(key.text(), value);
  }
  return make_namespace(run, std::move(names));
}

Value raise_exception(Run& run, const Arguments& arguments) {
  const Bound a(run, "raise_exception", "message", arguments);
  throw Fault(FaultKind::raised, text_of(run.meter(), a.value(0)));
}

Value strftime_now(Run& run, const Arguments& arguments) {
  const Bound a(run, "strftime_now", "format", arguments);
  const std::string format = a.text(0, {}) + " ";  // never an empty result
  constexpr size_t kLongest = 4096;
  std::array<char, kLongest> text;
  std::tm time{};
  const std::time_t now = run.now();
  localtime_r(&now, &time);
  const size_t size =
      format.size() > kLongest ? 0 : std::strftime(text.data(), text.size(), format.c_str(), &time);
  if (size == 0) refuse(FaultKind::limit, "strftime_now() gives too long a text");
  return make_text(run.meter(), to_valid_utf8({text.data(), size - 1}));
}

// joiner(separator): nothing at first, and then the separator.
Value joiner(Run& run, const Arguments& arguments) {
  const Bound a(run, "joiner", "sep=", arguments);
  const Value separator = make_text(run.meter(), a.text(0, ", "));
  auto used = std::make_shared<bool>(false);
  Meter& meter = run.meter();
  return make_function(
      run, "joiner",
      [used, separator, &meter](const Arguments&) {
        return std::exchange(*used, true) ? separator : make_text(meter, {});
      },
      separator);
}

class Cycler : public Instance, public std::enable_shared_from_this<Cycler> {
 public:
  Cycler(Run& run, Value items)
      : Instance(run.meter(), sizeof(Cycler), items.height() + 1),
        run_(run),
        items_(std::move(items)) {}

  std::string type() const override { return "Cycler"; }
  std::optional<Value> attribute(std::string_view name) override {
    if (name == "current") return items_.items()[at_];
    if (name != "next" && name != "reset") return std::nullopt;
    const bool resets = name == "reset";
    auto act = [this, resets](const Arguments&) {
      if (resets) {
        at_ = 0;
        return Value::none();
      }
      const Value item = items_.items()[at_];
      at_ = (at_ + 1) % items_.items().size();
      return item;
    };
    return make_function(run_, std::string(name), act, Value(Kind::object, shared_from_this()));
  }

 private:
  Run& run_;
  Value items_;
  size_t at_ = 0;
};

Value cycler(Run& run, const Arguments& arguments) {
  if (arguments.positional.empty()) refuse(FaultKind::value, "cycler() needs at least one item");
  Value items = make_list(run.meter(), arguments.positional);
  return {Kind::object, std::make_shared<Cycler>(run, std::move(items))};
}

using Global = Value (*)(Run&, const Arguments&);
constexpr std::array<std::pair<std::string_view, Global>, 7> kGlobals{
    {{"range", range},
     {"dict", dict},
     {"namespace", new_namespace},
     {"raise_exception", raise_exception},
     {"strftime_now", strftime_now},
     {"joiner", joiner},
     {"cycler", cycler}}};

}  // namespace

std::optional<Value> find_function(Run& run, std::string_view name) {
  const auto* found =
      std::ranges::find_if(kGlobals, [&](const auto& global) { return global.first == name; });
  if (found == kGlobals.end()) return std::nullopt;
  const Global function = found->second;
  return make_function(run, std::string(name),
                       [&run, function](const Arguments& a) { return function(run, a); });
}

}  // namespace sluice::jinja
