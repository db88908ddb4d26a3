// A GGUF file: header, config, tensors, tokenizer.
#include "src/models/registry.h"
#include "src/models/source.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

FUZZ_TARGET(gguf) {
  static test::TempDir dir;
  test::write_file(dir / "model.gguf", test::text_of(data, size));
  return test::taken_or_refused([&] {
    const auto source = open_model(dir / "model.gguf");
    source->index();
    test::taken_or_refused([&] { source->tokenizer(); });
    test::taken_or_refused([&] { source->embedding_rules(); });
    read_model(*source);
  });
}
