// Functions as values.
#pragma once

#include <functional>
#include <string>

#include "src/jinja/run.h"

namespace sluice::jinja {

using Action = std::function<Value(const Arguments&)>;

// `holds`: the value whose method it is, which lives as long.
Value make_function(Run& run, std::string name, Action action, Value holds = {});

}  // namespace sluice::jinja
