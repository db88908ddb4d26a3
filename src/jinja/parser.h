// Text to tree.
#pragma once

#include <string_view>

#include "src/jinja/nodes.h"

namespace sluice::jinja {

// Literals are the meter's, which outlives the tree. Throws Fault; `line` is where.
Body parse(std::string_view source, Meter& literals, int& line);

}  // namespace sluice::jinja
