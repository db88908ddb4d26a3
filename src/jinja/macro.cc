#include <algorithm>

#include "src/jinja/function_object.h"
#include "src/jinja/functions.h"
#include "src/jinja/run.h"

namespace sluice::jinja {
namespace {

class Macro : public Instance {
 public:
  Macro(Run& run, const Callable& callable)
      : Instance(run.meter(), sizeof(Macro)), run_(run), macro_(callable), scope_(run.scope()) {}

  std::string type() const override { return "Macro"; }
  std::string shown() const override { return fmt::format("<Macro '{}'>", macro_.name); }
  bool callable() const override { return true; }
  std::optional<Value> attribute(std::string_view name) override {
    if (name == "name") return make_text(run_.meter(), macro_.name);
    if (name == "caller") return Value::boolean(macro_.takes_caller);
    if (name == "catch_varargs") return Value::boolean(macro_.takes_list);
    if (name == "catch_kwargs") return Value::boolean(macro_.takes_dict);
    if (name != "arguments") return std::nullopt;
    Values names;
    for (const auto& [parameter, standard] : macro_.parameters)
      names.push_back(make_text(run_.meter(), parameter));
    return make_tuple(run_.meter(), std::move(names));
  }

  // Names are looked up where the macro was defined.
  Value call(const Arguments& arguments) override {
    Level level(run_.meter());
    Buffer text(run_.meter());
    {
      Run::Scope scope(run_, scope_);
      bind(arguments);
      Run::Redirect redirect(run_, text);
      run_.execute(macro_.body);
    }
    return make_text(run_.meter(), text.take());
  }

 private:
  void bind(const Arguments& arguments) {
    const size_t count = macro_.parameters.size();
    const Values& given = arguments.positional;
    if (given.size() > count && !macro_.takes_list)
      refuse(FaultKind::value, "macro '{}' takes not more than {} arguments", macro_.name, count);
    std::vector<bool> used(arguments.named.size());
    for (size_t i = 0; i < count; ++i) {
      const auto& [name, standard] = macro_.parameters[i];
      std::optional<Value> value = find_named(arguments, name, used);
      if (i < given.size()) {
        if (value) refuse(FaultKind::value, "macro '{}' got '{}' twice", macro_.name, name);
        value = given[i];
      }
      if (!value && standard) value = standard->value(run_);
      if (!value)
        value = make_missing(run_.meter(), fmt::format("parameter '{}' was not provided", name));
      run_.define(name, *std::move(value));
    }
    bind_rest(arguments, used);
  }

  static std::optional<Value> find_named(const Arguments& arguments, std::string_view name,
                                         std::vector<bool>& used) {
    for (size_t i = 0; i < arguments.named.size(); ++i) {
      if (arguments.named[i].first != name) continue;
      used[i] = true;
      return arguments.named[i].second;
    }
    return std::nullopt;
  }

  void bind_rest(const Arguments& arguments, std::vector<bool>& used) {
    const size_t count = macro_.parameters.size();
    if (macro_.takes_caller) {
      std::optional<Value> caller = find_named(arguments, "caller", used);
      const bool parameter =
          std::ranges::any_of(macro_.parameters, [](const auto& p) { return p.first == "caller"; });
      if (!parameter)
        run_.define("caller", caller ? *std::move(caller)
                                     : make_missing(run_.meter(), "no caller is defined"));
    }
    std::vector<Dict::Entry> more;
    for (size_t i = 0; i < used.size(); ++i) {
      const auto& [name, value] = arguments.named[i];
      if (used[i]) continue;
      if (!macro_.takes_dict)
        refuse(FaultKind::value, "macro '{}' takes no keyword argument '{}'", macro_.name, name);
      more.emplace_back(make_text(run_.meter(), name), value);
    }
    if (macro_.takes_dict) run_.define("kwargs", make_dict(run_.meter(), std::move(more)));
    if (!macro_.takes_list) return;
    const Values& given = arguments.positional;
    Values rest;
    for (size_t i = count; i < given.size(); ++i) rest.push_back(given[i]);
    run_.define("varargs", make_tuple(run_.meter(), std::move(rest)));
  }

  Run& run_;
  const Callable& macro_;
  std::shared_ptr<Changing> scope_;
};

class Function : public Instance {
 public:
  Function(Run& run, std::string name, Action action, Value holds)
      : Instance(run.meter(), sizeof(Function) + name.size(), holds.height() + 1),
        name_(std::move(name)),
        action_(std::move(action)),
        holds_(std::move(holds)) {}

  std::string type() const override { return "function"; }
  std::string shown() const override { return fmt::format("<function {}>", name_); }
  bool callable() const override { return true; }
  Value call(const Arguments& arguments) override { return action_(arguments); }

 private:
  std::string name_;
  Action action_;
  Value holds_;
};

class Namespace : public Instance {
 public:
  Namespace(Run& run, Names names)
      : Instance(run.meter(), sizeof(Namespace)), changing_(run.registry()) {
    for (auto& [name, value] : names) changing_.set(name, std::move(value));
  }

  std::string type() const override { return "Namespace"; }
  Changing* names() override { return &changing_; }
  std::optional<Value> attribute(std::string_view name) override {
    const Value* found = changing_.find(name);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }

 private:
  Changing changing_;
};

}  // namespace

Value make_macro(Run& run, const Callable& callable) {
  return {Kind::object, std::make_shared<Macro>(run, callable)};
}

Value make_namespace(Run& run, Names names) {
  return {Kind::object, std::make_shared<Namespace>(run, std::move(names))};
}

Value make_function(Run& run, std::string name, Action action, Value holds) {
  return {Kind::object,
          std::make_shared<Function>(run, std::move(name), std::move(action), std::move(holds))};
}

}  // namespace sluice::jinja
