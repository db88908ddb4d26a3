// model.safetensors, from its header to the index of its tensors; and the same file as two parts of
// a checkpoint that is cut for ranks.
#include "io/checkpoint/index.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

FUZZ_TARGET(safetensors) {
  std::string_view text = test::text_of(data, size);
  static test::TempDir dir, parts;
  test::write_file(dir / "model.safetensors", text);
  for (const char* name : {"consolidated.00.safetensors", "consolidated.01.safetensors"})
    test::write_file(parts / name, text);
  test::taken_or_refused([&] { io::open_checkpoint(parts.path(), {}); });
  return test::taken_or_refused([&] { io::open_checkpoint(dir.path(), {}); });
}
