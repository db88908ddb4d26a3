// The version of this build, and what it found on this machine.
#pragma once

#include <string>

namespace sluice::cli {

// verbose: also which kernels serve which ops, and what the CPU has or lacks for each set of them.
std::string version_text(bool verbose);

}  // namespace sluice::cli
