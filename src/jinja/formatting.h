// Values into a text with places for them, as Python's % and str.format() do it.
#pragma once

#include <string_view>

#include "src/jinja/value.h"

namespace sluice::jinja {

class Run;

// "%s: %5.2f" % values: a tuple, a dict for %(name)s, or the only value.
Value percent_format(Meter& meter, const Value& format, const Value& values);
// "{}, {name!r:>8}".format(...)
Value brace_format(Run& run, std::string_view format, const Arguments& arguments);

}  // namespace sluice::jinja
