// Methods of Python's str, for filters and methods.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/jinja/value.h"

namespace sluice::jinja {

enum class Side : uint8_t { left, right, both };

// Returns where `what` begins in `text`, at `from` or later, in linear time; npos: nowhere.
size_t find_in(std::string_view text, std::string_view what, size_t from = 0);
std::string capitalize(std::string_view text);
// Strips the characters of `characters` from the ends.
std::string_view strip_of(Meter& meter, std::string_view text, std::string_view characters,
                          Side side);
// `count` replacements at most; -1: all.
Value replace_all(Meter& meter, std::string_view text, std::string_view from, std::string_view to,
                  int64_t count);
// Fills up to `width` with `fill` at that side.
Value justify(Meter& meter, std::string_view text, int64_t width, std::string_view fill, Side side);
// The characters before the first white space, and behind the last one.
std::string_view first_word(std::string_view text);
std::string_view last_word(std::string_view text);

}  // namespace sluice::jinja
