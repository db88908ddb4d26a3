// Targets that kernels_test alone has.
#pragma once

#include <vector>

#include "tests/kernels/backend.h"
#include "tests/kernels/emulated_amx.h"

namespace sluice::test {

// AMX kernels on emulated tiles: their source, and their machine code.
std::vector<Target> emulated_tiles();

}  // namespace sluice::test
