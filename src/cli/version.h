// What this build is and what it found on this machine.
#pragma once

#include <string>

namespace sluice::cli {

std::string version_text();

}  // namespace sluice::cli
