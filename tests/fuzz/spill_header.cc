// The first bytes of a file of the spill cache.
#include "src/load/spill_header.h"

#include "tests/fuzz/fuzz.h"

using namespace sluice;

FUZZ_TARGET(spill_header) {
  std::string_view text = test::text_of(data, size);
  static test::TempDir dir;
  test::write_file(dir / "x.spill", text);
  return test::taken_or_refused([&] { read_spill_header(dir / "x.spill"); });
}
