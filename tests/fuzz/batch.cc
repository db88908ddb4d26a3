// A file of requests.
#include "src/serve/batch_file.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text = test::text_of(data, size);
  static test::TempDir dir;
  test::write_file(dir / "requests", text);
  test::write_file(dir / "responses", text);
  test::taken_or_refused([&] { read_batch(dir / "requests"); });
  return test::taken_or_refused([&] { BatchOutput{dir / "responses"}; });
}
