// rates.json of the cache: what it says, or as if there were none; never an error.
#include "src/plan/rates.h"

#include <cmath>

#include "tests/fuzz/fuzz.h"

using namespace sluice;

FUZZ_TARGET(rates) {
  static test::TempDir dir;
  const RateKeys keys{"1", "bf16 none", "auto 2 threads", "a GPU"};
  const std::filesystem::path file = dir / "rates.json";
  test::write_file(file, test::text_of(data, size));
  const Rates rates = remembered_rates(file, keys);
  for (const Rate& rate : {rates.disk, rates.sweep, rates.memory, rates.link})
    check(rate.bytes_per_second > 0 && std::isfinite(rate.bytes_per_second), "each has a rate");
  std::vector<Observation> seen;
  for (RateKind kind :
       {RateKind::disk, RateKind::sweep, RateKind::memory, RateKind::step, RateKind::link}) {
    for (int i = 0; i < 8; ++i) seen.push_back({kind, 1e9});
  }
  check(remember_rates(file, keys, seen), "the file can be replaced");
  check(remembered_rates(file, keys).disk.bytes_per_second == 1e9, "it was remembered");
  return 0;
}
