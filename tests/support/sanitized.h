// The cases that tests leave out because they take long and repeat what others show.
#pragma once

#include <cstdlib>

#include "tests/support/random.h"

namespace sluice::test {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
inline constexpr const char* kEmulatedTooSlow =
    "many emulated kernels take minutes under the sanitizers; the plain build runs them";

// Says if `tools/test --all` asked for all models and cases.
inline bool runs_all() { return std::getenv("SLUICE_TEST_ALL") != nullptr; }

// True where tests leave out what takes minutes under sanitizers.
inline bool is_brief() { return kSanitized && !runs_all(); }

// Returns whether to leave out one of `each` or more cases that take the same way. A sanitized
// build, which looks for what all of them would show, takes one of `each` in a row. Other builds
// leave out none.
inline bool leaves_out(Random& random, int64_t each = 12) {
  return is_brief() && !random.one_of(each);
}

}  // namespace sluice::test
