// Templates in Jinja, as transformers renders those of chats: sandboxed, with trim_blocks,
// lstrip_blocks, break and continue, {% generation %}, and its tojson, raise_exception and
// strftime_now. No other template can be loaded.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "src/base/json.h"
#include "src/jinja/run.h"
#include "src/jinja/value.h"

namespace sluice::jinja {

// The variables of one rendering, and its limits.
class Context {
 public:
  explicit Context(Limits limits = {}, Meter::Reserve reserve = {})
      : meter_(limits, std::move(reserve)), registry_(meter_) {}

  Meter& meter() { return meter_; }
  Registry& registry() { return registry_; }
  void set(std::string name, Value value) {
    variables_.insert_or_assign(std::move(name), std::move(value));
  }
  const Value* find(std::string_view name) const;
  const Names& variables() const { return variables_; }
  std::time_t now = std::time(nullptr);  // of strftime_now

 private:
  Meter meter_;
  Registry registry_;
  Names variables_;
};

class Template {
 public:
  static constexpr uint64_t kLongest = 4 * MiB;

  // `name` is for errors. Throws TemplateError for what is no template.
  Template(std::string name, std::string_view source);

  // Throws TemplateError, or what the context's reserve throws.
  std::string render(Context& context) const;
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::unique_ptr<Meter> literals_;  // of the texts in the tree
  Body body_;
};

// JSON as a value, in the order of its keys. Error(refused) that names `where`.
Value read_json(Meter& meter, std::string_view text, std::string_view where);
// The same of JSON that has been parsed by parse_ordered().
Value value_of(Meter& meter, const OrderedJson& json, std::string_view where);

}  // namespace sluice::jinja
