#include <cstdlib>

#include "tests/support/temp.h"

namespace sluice::test {

std::filesystem::path source_dir() {
  const char* given = std::getenv("SLUICE_SOURCE");
  return given ? given : SLUICE_SOURCE_DIR;
}

}  // namespace sluice::test
