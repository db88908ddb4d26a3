#include "src/jinja/template.h"

#include "src/jinja/parser.h"
#include "src/text/utf8.h"

namespace sluice::jinja {

const Value* Context::find(std::string_view name) const {
  auto at = variables_.find(name);
  return at == variables_.end() ? nullptr : &at->second;
}

Template::Template(std::string name, std::string_view source) : name_(std::move(name)) {
  constexpr Limits kParsing{.steps = 4 * kLongest, .depth = 300, .bytes = 16 * kLongest};
  literals_ = std::make_unique<Meter>(kParsing);
  int line = 1;
  try {
    if (source.size() > kLongest)
      refuse(FaultKind::limit, "a template of more than {}", format_size(kLongest));
    body_ = parse(to_valid_utf8(source), *literals_, line);
  } catch (const Fault& fault) {
    throw TemplateError(fault.kind(), name_, line, fault.what());
  }
}

std::string Template::render(Context& context) const {
  Run run(context.meter(), context.registry(), context.variables(), context.now);
  Buffer out(context.meter());
  try {
    Run::Redirect redirect(run, out);
    run.execute(body_);
    return out.take();
  } catch (const Fault& fault) {
    throw TemplateError(fault.kind(), name_, run.line, fault.what());
  }
}

}  // namespace sluice::jinja
