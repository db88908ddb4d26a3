// check(): an invariant of our own code; always on, never reachable from user input. Without fmt,
// which nvcc does not compile.
#pragma once

#include <source_location>
#include <string_view>

namespace sluice {

[[noreturn]] void check_failed(std::string_view what, std::source_location where);

inline void check(bool ok, std::string_view what,
                  std::source_location where = std::source_location::current()) {
  if (!ok) [[unlikely]]
    check_failed(what, where);
}

}  // namespace sluice
