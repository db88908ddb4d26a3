// Whole models against Hugging Face transformers, on all that a program has (golden_runs.h): logits
// within the manifest's tolerance, greedy tokens, and the same bits where weights are streamed.
#include <gtest/gtest.h>

#include "tests/engine/golden_runs.h"
#include "tests/engine/placed.h"
#include "tests/support/sanitized.h"

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
    auto session = loaded(model, goldens, how);
    for (const test::Golden& golden : goldens) {
      SCOPED_TRACE(testing::Message() << "prompt of " << golden.ids.size());
      expect(
          test::run_prompt(*session, golden.ids, tokens ? std::ssize(golden.greedy) : 0, how.chunk),
          golden);
    }
    if (how.check != nullptr) how.check(*session);
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

// Some layers, or all there is, on disk or in the host's memory, read anew by every pass; what is
// quantized is spilled by the first run, and read from there by the second.
TEST_P(GoldenPaths, SameBitsStreamedAndFromTheSpill) {
  const test::GoldenRuns& runs = golden_runs();
  if (runs.streamed_dtypes.empty()) GTEST_SKIP() << test::kEmulatedTooSlow;
  const auto& ids = (runs.streams_the_longest ? goldens_.back() : goldens_.front()).ids;
  How how = runs.how;
  how.chunk = 20;
  std::vector<std::string> places = runs.places;
  if (runs.streams_half) places.push_back(test::half_on_disk(options_for(GetParam(), how)));
  for (DtypeChoice dtype : runs.streamed_dtypes) {
    for (const char* scheme : {"none", "fp8_per_channel"}) {
      how.dtype = dtype;
      how.scheme = scheme;
      how.place = "";
      how.spill.clear();
      const Outcome resident = run_model(GetParam(), ids, 2, how);
      for (const std::string& place : places) {
        test::TempDir spill;
        how.place = place;
        how.spill = spill.path();
        for (int start = 1; start <= runs.starts; ++start) {
          SCOPED_TRACE(testing::Message() << scheme << ", " << place << ", start " << start);
          const Outcome streamed = run_model(GetParam(), ids, 2, how);
          EXPECT_EQ(streamed.logits, resident.logits);
          EXPECT_EQ(streamed.greedy, resident.greedy);
        }
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

}  // namespace
}  // namespace sluice
