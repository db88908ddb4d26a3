
#include "src/jinja/functions.h"
#include "src/jinja/loop.h"
#include "src/jinja/nodes.h"
#include "src/jinja/run.h"
#include "src/jinja/show.h"

namespace sluice::jinja {
Flow Statement::execute(Run& run) const {
  Level level(run.meter());
  run.meter().step();
  run.line = line;
  return work(run);
}

Flow Output::work(Run& run) const {
  if (!expression) {
    run.print(text);
  } else {
    append_text_of(expression->value(run), run.out());
  }
  return Flow::next;
}

Flow For::work(Run& run) const {
  loop(run, source->value(run), 0);
  return Flow::next;
}

void For::loop(Run& run, const Value& values, int depth) const {
  Values items = iterate(run.meter(), values);
  if (test) {
    Values kept;
    for (Value& item : items) {
      run.meter().step(4);
      Run::Scope scope(run);
      run.assign(target, item);
      if (truth(test->value(run))) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  const Value list = make_list(run.meter(), std::move(items));
  auto state = std::make_shared<Loop>(run, *this, list, depth);
  for (size_t i = 0; i < list.items().size(); ++i) {
    run.meter().step(4);  // a scope costs more than an expression
    Run::Scope scope(run);
    state->go_to(i);
    run.assign(target, list.items()[i]);
    run.define("loop", Value(Kind::object, state));
    if (run.execute(body) == Flow::leave_loop) return;
  }
  if (!list.items().empty()) return;
  Run::Scope scope(run);
  run.execute(otherwise);
}

Flow If::work(Run& run) const {
  for (const auto& [condition, body] : branches)
    if (truth(condition->value(run))) return run.execute(body);
  return run.execute(otherwise);
}

Flow Set::work(Run& run) const {
  run.assign(target, value->value(run));
  return Flow::next;
}

Flow MacroDefinition::work(Run& run) const {
  run.define(macro.name, make_macro(run, macro));
  return Flow::next;
}

Flow CallBlock::work(Run& run) const {
  const Value body = make_macro(run, caller);
  append_text_of(call->call(run, &body), run.out());
  return Flow::next;
}

Flow Block::work(Run& run) const {
  Values values;
  for (const auto& [target, value] : names) values.push_back(value->value(run));
  Run::Scope scope(run);
  for (size_t i = 0; i < names.size(); ++i) run.assign(names[i].first, std::move(values[i]));
  return run.execute(body);
}

}  // namespace sluice::jinja
