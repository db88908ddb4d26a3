// The methods of str.
#pragma once

#include <span>

#include "src/jinja/functions.h"

namespace sluice::jinja {

std::span<const Filter> string_methods();

}  // namespace sluice::jinja
