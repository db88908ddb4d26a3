#include <cstdio>
#include <cstdlib>

#include "tests/kernels/emulated_amx.h"

namespace sluice::test {

[[noreturn]] void tile_fault(const char* what) {
  std::fprintf(stderr, "emulated tiles: not so: %s\n", what);
  std::abort();
}

}  // namespace sluice::test
