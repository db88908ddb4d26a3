#include "src/jinja/loop.h"

#include "src/jinja/function_object.h"
#include "src/jinja/run.h"

namespace sluice::jinja {

Loop::Loop(Run& run, const For& statement, Value items, int depth)
    : Instance(run.meter(), sizeof(Loop), items.height() + 1),
      run_(run),
      statement_(statement),
      outer_(run.scope()),
      items_(std::move(items)),
      depth_(depth) {}

std::string Loop::shown() const {
  return fmt::format("<LoopContext {}/{}>", index_ + 1, items_.items().size());
}

std::optional<Value> Loop::attribute(std::string_view name) {
  const auto size = static_cast<int64_t>(items_.items().size());
  const auto index = static_cast<int64_t>(index_);
  if (name == "index") return Value::integer(index + 1);
  if (name == "index0") return Value::integer(index);
  if (name == "revindex") return Value::integer(size - index);
  if (name == "revindex0") return Value::integer(size - index - 1);
  if (name == "first") return Value::boolean(index == 0);
  if (name == "last") return Value::boolean(index + 1 == size);
  if (name == "length") return Value::integer(size);
  if (name == "depth") return Value::integer(depth_ + 1);
  if (name == "depth0") return Value::integer(depth_);
  if (name == "previtem") return neighbour(index_ - 1, index_ > 0, "previous");
  if (name == "nextitem") return neighbour(index_ + 1, index + 1 < size, "next");
  if (name == "cycle") return method("cycle", &Loop::cycle);
  if (name == "changed") return method("changed", &Loop::changed);
  return std::nullopt;
}

Value Loop::method(const char* name, Value (Loop::*action)(const Arguments&)) {
  auto act = [this, action](const Arguments& arguments) { return (this->*action)(arguments); };
  return make_function(run_, name, act, Value(Kind::object, shared_from_this()));
}

Value Loop::neighbour(size_t index, bool there, std::string_view what) const {
  if (there) return items_.items()[index];
  return make_missing(run_.meter(), fmt::format("there is no {} item", what));
}

Value Loop::cycle(const Arguments& arguments) {
  if (arguments.positional.empty()) refuse(FaultKind::value, "no items for cycling given");
  return arguments.positional[index_ % arguments.positional.size()];
}

Value Loop::changed(const Arguments& arguments) {
  Value now = make_tuple(run_.meter(), arguments.positional);
  if (last_.is(Kind::tuple) && equal(run_.meter(), last_, now)) return Value::boolean(false);
  last_ = std::move(now);
  return Value::boolean(true);
}

// The loop's body again, over other items.
Value Loop::call(const Arguments& arguments) {
  if (!statement_.recursive)
    refuse(FaultKind::value, "the loop must have 'recursive' to be called");
  if (arguments.positional.size() != 1 || !arguments.named.empty())
    refuse(FaultKind::value, "loop() takes the items of the loop, and nothing else");
  Buffer text(run_.meter());
  {
    Run::Scope scope(run_, outer_);
    Run::Redirect redirect(run_, text);
    statement_.loop(run_, arguments.positional.front(), depth_ + 1);
  }
  return make_text(run_.meter(), text.take());
}

}  // namespace sluice::jinja
