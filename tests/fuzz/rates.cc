// rates.json of the cache: what it says, or as if there were none; never an error.
#include "src/plan/rates.h"

#include <cmath>

#include "tests/fuzz/fuzz.h"

using namespace sluice;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static test::TempDir dir;
  test::write_file(dir / "rates.json", test::text_of(data, size));
  Rates rates = remembered_rates(dir / "rates.json", dir.path(), "a GPU");
  check(rates.disk > 0 && std::isfinite(rates.disk), "a disk has a rate");
  check(rates.memory > 0 && std::isfinite(rates.memory), "memory has a rate");
  check(rates.link > 0 && std::isfinite(rates.link), "a link has a rate");
  check(remember_rates(dir / "rates.json", dir.path(),
                       {.disk = 1e9, .memory = 2e9, .link = 3e9, .device = "a GPU"}),
        "the file can be replaced");
  check(remembered_rates(dir / "rates.json", dir.path()).disk == 1e9, "it was remembered");
  return 0;
}
