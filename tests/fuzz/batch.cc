// A file of requests, and one of responses.
#include <set>

#include "src/serve/batch_file.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text = test::text_of(data, size);
  static test::TempDir dir;
  test::write_file(dir / "requests", text);
  std::vector<BatchLine> lines = read_batch(dir / "requests", {});
  std::set<std::string> ids;
  for (const BatchLine& line : lines) {
    check(ids.insert(line.id).second, "no two lines have the same id");
    check(line.body.is_null() || line.fault.empty(), "a fault or a body");
  }
  // What was answered is known again.
  std::filesystem::remove(dir / "answers");
  {
    BatchOutput answers(dir / "answers", {});
    for (const BatchLine& line : lines) answers.add(line, 400, line.fault);
  }
  BatchOutput again(dir / "answers", {});
  for (const BatchLine& line : lines) check(again.done(line), "an answer is forgotten");
  test::write_file(dir / "responses", text);
  return test::taken_or_refused([&] { BatchOutput{dir / "responses", {}}; });
}
