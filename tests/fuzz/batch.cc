// A file of requests, and one of responses.
#include <set>

#include "io/input_file.h"
#include "src/serve/batch/batch_index.h"
#include "src/serve/batch/batch_output.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

namespace {

constexpr uint64_t kLongestText = 1 << 16;
constexpr RequestLimits kLimits{.bytes = 1024, .parse_bytes = 1 << 20};

BatchIndex index_of(const io::InputFile& file, Ledger& ledger, const BatchOutput& output) {
  return {file,   count_batch_lines(file),           kLimits, ledger,
          output, [](const BatchLine&) { return 0; }};
}

}  // namespace

FUZZ_TARGET(batch) {
  std::string_view text = test::text_of(data, size);
  static test::TempDir dir;
  test::write_file(dir / "requests", text);
  std::filesystem::remove(dir / "answers");
  Ledger ledger;
  const io::InputFile requests(dir / "requests", dir.path(), {});
  {
    BatchOutput answers(dir / "answers", kLongestText, ledger, {});
    BatchIndex index = index_of(requests, ledger, answers);
    check(std::ssize(index.pending()) == index.lines(), "a line is forgotten");
    std::set<std::string> ids;
    for (const BatchEntry& entry : index.pending()) {
      BatchLine line = index.read(entry);
      check(ids.insert(line.id).second, "no two lines have the same id");
      check(line.body.is_null() || line.fault.empty(), "a fault or a body");
      answers.add(line, 400, [&](JsonWriter& json) { json.value(line.fault); });
    }
  }
  // Answers that were written are known again.
  BatchOutput again(dir / "answers", kLongestText, ledger, {});
  check(index_of(requests, ledger, again).pending().empty(), "an answer is forgotten");
  test::write_file(dir / "responses", text);
  return test::taken_or_refused([&] { BatchOutput{dir / "responses", kLongestText, ledger, {}}; });
}
