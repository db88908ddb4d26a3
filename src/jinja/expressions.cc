#include "src/jinja/functions.h"
#include "src/jinja/nodes.h"
#include "src/jinja/run.h"
#include "src/jinja/show.h"

namespace sluice::jinja {
namespace {

std::optional<int64_t> bound(Run& run, const Expr& expression) {
  if (!expression) return std::nullopt;
  const Value value = expression->value(run);
  if (value.is(Kind::none)) return std::nullopt;
  need_defined(value);
  if (!value.is_integer())
    refuse(FaultKind::value, "slice indices must be integers or None, not {}", type_name(value));
  return value.integer();
}

bool holds(Meter& meter, Relation relation, const Value& a, const Value& b) {
  switch (relation) {
    case Relation::equal:
      return equal(meter, a, b);
    case Relation::unequal:
      return !equal(meter, a, b);
    case Relation::less:
      return less(meter, a, b);
    case Relation::less_equal:
      return less_equal(meter, a, b);
    case Relation::greater:
      return less(meter, b, a);
    case Relation::greater_equal:
      return less_equal(meter, b, a);
    case Relation::in:
      return contains(meter, b, a);
    case Relation::not_in:
      return !contains(meter, b, a);
  }
  return false;
}

}  // namespace

Value Expression::value(Run& run) const {
  Level level(run.meter());
  run.meter().step();
  run.line = line;
  return evaluate(run);
}

Arguments CallArguments::values(Run& run) const {
  Arguments values;
  for (const Expr& e : positional) values.positional.push_back(e->value(run));
  for (const auto& [name, e] : named) values.named.emplace_back(name, e->value(run));
  if (list) {
    for (Value& item : iterate(run.meter(), list->value(run)))
      values.positional.push_back(std::move(item));
  }
  if (dict) {
    const Value more = dict->value(run);
    if (!more.is(Kind::dict)) refuse(FaultKind::value, "what follows ** must be a mapping");
    for (const auto& [key, value] : more.dict().entries) {
      if (!key.is(Kind::text)) refuse(FaultKind::value, "keywords must be strings");
      values.named.emplace_back(key.text(), value);
    }
  }
  return values;
}

Value Name::evaluate(Run& run) const { return run.look_up(name); }

Value ListDisplay::evaluate(Run& run) const {
  Values values;
  values.reserve(items.size());
  for (const Expr& item : items) values.push_back(item->value(run));
  return tuple ? make_tuple(run.meter(), std::move(values))
               : make_list(run.meter(), std::move(values));
}

Value DictDisplay::evaluate(Run& run) const {
  std::vector<Dict::Entry> values;
  values.reserve(entries.size());
  for (const auto& [key, value] : entries) {
    Value k = key->value(run);
    values.emplace_back(std::move(k), value->value(run));
  }
  return make_dict(run.meter(), std::move(values));
}

Value Signed::evaluate(Run& run) const {
  const Value value = operand->value(run);
  return minus ? negative(run.meter(), value) : positive(value);
}

Value Operation::evaluate(Run& run) const {
  const Value a = left->value(run);
  const Value b = right->value(run);
  run.line = line;
  return compute(run.meter(), op, a, b);
}

Value Concatenation::evaluate(Run& run) const {
  Buffer out(run.meter());
  for (const Expr& part : parts) append_text_of(part->value(run), out);
  return make_text(run.meter(), out.take());
}

Value Not::evaluate(Run& run) const { return Value::boolean(!truth(operand->value(run))); }

Value Logic::evaluate(Run& run) const {
  Value value = left->value(run);
  return truth(value) == is_or ? value : right->value(run);
}

Value Comparison::evaluate(Run& run) const {
  Value last = first->value(run);
  for (const auto& [relation, operand] : rest) {
    Value next = operand->value(run);
    run.line = line;
    if (!holds(run.meter(), relation, last, next)) return Value::boolean(false);
    last = std::move(next);
  }
  return Value::boolean(true);
}

Value Conditional::evaluate(Run& run) const {
  if (truth(test->value(run))) return yes->value(run);
  if (no) return no->value(run);
  return make_missing(run.meter(), "the condition is false, and there is no 'else'");
}

Value AttributeOf::evaluate(Run& run) const {
  const Value owner = object->value(run);
  return attribute_of(run, owner, name);
}

Value ItemOf::evaluate(Run& run) const {
  const Value owner = object->value(run);
  return item_of(run, owner, key->value(run));
}

Value SliceOf::evaluate(Run& run) const {
  const Value owner = object->value(run);
  const SliceBounds bounds{
      .start = bound(run, start), .stop = bound(run, stop), .step = bound(run, step)};
  return slice(run.meter(), owner, bounds);
}

Value Call::call(Run& run, const Value* caller) const {
  const Value function = callee->value(run);
  need_defined(function);
  Arguments values = arguments.values(run);
  if (caller != nullptr) values.named.emplace_back("caller", *caller);
  run.line = line;
  return jinja::call(run, function, std::move(values));
}

Value FilterUse::evaluate(Run& run) const {
  const Value value = subject->value(run);
  if (filter == nullptr) refuse(FaultKind::syntax, "no filter named '{}'", name);
  Arguments values = arguments.values(run);
  run.line = line;
  return apply_filter(run, *filter, value, std::move(values));
}

Value Capture::evaluate(Run& run) const { return run.capture(body); }

Value TestUse::evaluate(Run& run) const {
  if (test == nullptr) refuse(FaultKind::syntax, "no test named '{}'", name);
  const Value value = subject->value(run);
  Arguments values = arguments.values(run);
  run.line = line;
  return Value::boolean(apply_test(run, *test, value, std::move(values)));
}

}  // namespace sluice::jinja
