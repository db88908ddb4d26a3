// config.json and generation_config.json, to the meta model that is made of them.
#include "src/models/registry.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

FUZZ_TARGET(config) {
  std::string_view input = test::text_of(data, size);
  static test::TempDir dir;
  test::write_file(dir / "config.json", test::take_part(input));
  test::write_file(dir / "generation_config.json", input.empty() ? "{}" : input);
  return test::taken_or_refused([&] { build_model(dir.path(), Rank{}); });
}
