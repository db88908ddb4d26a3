// JSON from untrusted files as a stream of events. Unlike a parsed document it shows names that
// occur twice and numbers that do not fit, and needs no memory for what is skipped, nor for the
// text: of a string only the beginning is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace sluice::io {

struct JsonEvent {
  enum class Kind : uint8_t {
    object,    // begins
    array,     // begins
    end,       // of the object or array that began at the same depth
    string,    // `text`
    natural,   // `number`: an integer that fits 64 bits without sign
    negative,  // an integer below zero
    fraction,  // has a fraction or an exponent, or does not fit 64 bits
    other,     // null, true, false
  };
  Kind kind = Kind::other;
  int depth = 0;         // objects and arrays around it
  std::string_view key;  // its name, in an object; empty for `end`
  std::string_view text;
  uint64_t number = 0;
};

// The next piece of the text, valid until the next call; empty: there is no more.
using JsonSource = std::function<std::string_view()>;

// An event has about this much of a longer string: more than any name or message needs.
inline constexpr size_t kLongestJsonString = 64 << 10;  // bytes

// Calls `handle` for every event of the text in order. Throws Error(refused) that begins with
// `where` for text that is no JSON, is not UTF-8, or nests deeper than `max_depth`. Views in an
// event are valid during the call only.
void read_json_events(const JsonSource& source, std::string_view where, int max_depth,
                      const std::function<void(const JsonEvent&)>& handle);
void read_json_events(std::string_view text, std::string_view where, int max_depth,
                      const std::function<void(const JsonEvent&)>& handle);

}  // namespace sluice::io
