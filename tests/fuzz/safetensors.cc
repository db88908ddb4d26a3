// model.safetensors, from its header to the index of its tensors.
#include "io/checkpoint/index.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

FUZZ_TARGET(safetensors) {
  std::string_view text = test::text_of(data, size);
  static test::TempDir dir;
  test::write_file(dir / "model.safetensors", text);
  return test::taken_or_refused([&] { io::open_checkpoint(dir.path(), {}); });
}
