// Whole models against Hugging Face transformers, on all that a program has (golden_runs.h): logits
// within the manifest's tolerance, greedy tokens, and the same bits where weights are streamed.
#include <gtest/gtest.h>

#include <map>
#include <string_view>

#include "tests/engine/golden_runs.h"
#include "tests/engine/placed.h"

namespace sluice {
namespace {

using test::golden_runs;
using test::GoldenTest;
using test::How;
using test::Outcome;

// Gives expect() the outcome of each prompt by each instruction set, with tokens generated or not.
template <class Expect>
void run_all(const std::filesystem::path& model, std::span<const test::Golden> goldens, How how,
             std::span<const Isa> isas, bool tokens, Expect expect) {
  for (Isa isa : isas) {
    if (!isa_supported(isa) && isa != Isa::automatic) continue;
    how.isa = isa;
    const auto ready = loaded(model, goldens, how);
    for (const test::Golden& golden : goldens) {
      SCOPED_TRACE(testing::Message() << "prompt of " << golden.ids.size());
      expect(test::run_prompt(ready->model, golden.ids, tokens ? std::ssize(golden.greedy) : 0,
                              how.chunk),
             golden);
    }
    if (how.check != nullptr) how.check(ready->model);
  }
}

TEST_P(GoldenTest, Float32LogitsAndGreedyTokens) {
  How how = golden_runs().how;
  how.dtype = DtypeChoice::f32;
  run_all(GetParam(), goldens_, how, golden_runs().float32_isas, true,
          [&](const Outcome& actual, const test::Golden& golden) {
            EXPECT_EQ(actual.greedy, golden.greedy);
            file_.expect_float32(actual, golden);
          });
}

class GoldenPaths : public GoldenTest {};

TEST_P(GoldenPaths, Bfloat16WithinItsTolerance) {
  run_all(GetParam(), goldens_, golden_runs().how, golden_runs().bfloat16_isas, false,
          [&](const Outcome& actual, const test::Golden& golden) {
            file_.expect_bfloat16(actual, golden);
          });
}

class GoldenStreamed : public GoldenTest {};

// Some layers, or all there is, on disk or in the host's memory, read anew by every pass; what is
// quantized is spilled by the first run, and read from there by the second.
TEST_P(GoldenStreamed, SameBitsStreamedAndFromTheSpill) {
  const test::GoldenRuns& runs = golden_runs();
  const auto& ids = (runs.streams_the_longest ? goldens_.back() : goldens_.front()).ids;
  How how = runs.how;
  how.chunk = 20;
  for (DtypeChoice dtype : runs.streamed_dtypes) {
    std::map<std::string_view, Outcome> resident;  // by the scheme
    how.dtype = dtype;
    for (const auto& [scheme, place] : runs.streamed) {
      how.scheme = scheme;
      how.place.clear();
      how.spill.clear();
      if (!resident.contains(scheme)) resident[scheme] = run_model(GetParam(), ids, 2, how);
      test::TempDir spill;
      how.spill = spill.path();
      how.place =
          place != test::kHalfOnDisk ? place : test::half_on_disk(options_for(GetParam(), how));
      for (int start = 1; start <= runs.starts; ++start) {
        SCOPED_TRACE(testing::Message() << scheme << ", " << place << ", start " << start);
        const Outcome streamed = run_model(GetParam(), ids, 2, how);
        EXPECT_EQ(streamed.logits, resident[scheme].logits);
        EXPECT_EQ(streamed.greedy, resident[scheme].greedy);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Bundled, GoldenTest, testing::ValuesIn(golden_runs().bundled),
                         test::golden_name);
INSTANTIATE_TEST_SUITE_P(Shared, GoldenTest, testing::ValuesIn(golden_runs().shared),
                         test::golden_name);
INSTANTIATE_TEST_SUITE_P(Bundled, GoldenPaths, testing::ValuesIn(golden_runs().bundled_paths),
                         test::golden_name);
INSTANTIATE_TEST_SUITE_P(Shared, GoldenPaths, testing::ValuesIn(golden_runs().shared),
                         test::golden_name);
INSTANTIATE_TEST_SUITE_P(Bundled, GoldenStreamed, testing::ValuesIn(golden_runs().bundled_streamed),
                         test::golden_name);
INSTANTIATE_TEST_SUITE_P(Shared, GoldenStreamed, testing::ValuesIn(golden_runs().shared),
                         test::golden_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GoldenStreamed);

}  // namespace
}  // namespace sluice
