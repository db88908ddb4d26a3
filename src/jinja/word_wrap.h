// Lines of a width, as Python's textwrap breaks them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/jinja/meter.h"

namespace sluice::jinja {

struct WrapStyle {
  int64_t width = 79;  // characters; 1 or more
  bool break_long_words = true;
  bool break_on_hyphens = true;
};

std::vector<std::string> wrap_words(Meter& meter, std::string_view line, const WrapStyle& style);

}  // namespace sluice::jinja
