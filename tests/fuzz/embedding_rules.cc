// modules.json and the config of its Pooling, to rules or to why they cannot be followed.
#include "src/models/embedding_rules.h"

#include "tests/fuzz/fuzz.h"

using namespace sluice;

FUZZ_TARGET(embedding_rules) {
  std::string_view input = test::text_of(data, size);
  static test::TempDir dir;
  std::filesystem::create_directory(dir / "1_Pooling");
  test::write_file(dir / "modules.json", test::take_part(input));
  test::write_file(dir / "1_Pooling/config.json", input);
  const EmbeddingRules rules = read_embedding_rules(dir.path());
  return test::taken_or_refused([&] {
    if (!rules.refusal.empty()) fail(ErrorKind::refused, "{}", rules.refusal);
  });
}
