// The CPU computes beside an emulated device: weights in host memory are multiplied where they lie
// by steps of few rows, and cross the link for more.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "src/base/error.h"
#include "tests/engine/golden.h"
#include "tests/engine/how.h"
#include "tests/engine/small_model.h"
#include "tests/support/random.h"
#include "tests/support/sanitized.h"
#include "tests/support/simt/emulated_backend.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using simt::Schedule;
using test::How;
using test::Outcome;
using test::run_model;

void expect_planned_peaks(LoadedModel& loaded) {
  const Ledger& ledger = loaded.planner().machine().ledger();
  const MemoryPlan& plan = loaded.memory_plan();
  EXPECT_EQ(ledger.peak(Place::device), plan.device.peak());
  EXPECT_LE(ledger.peak(Place::host), plan.peak());
  EXPECT_GT(plan.host_multiplied_bytes, 0u);
}

How beside(How how, Schedule schedule = Schedule::lazy) {
  how.backend = [=] { return simt::make_emulated_backend({.schedule = schedule, .seed = 17}); };
  how.check = expect_planned_peaks;
  return how;
}

const std::vector<int32_t> kIds{5, 17, 30, 2, 44, 9, 61, 7, 8, 50, 33, 12};

class Hybrid : public testing::TestWithParam<const char*> {};

// Experts alone, as people use it, and everything that can leave the device.
TEST_P(Hybrid, GoldensOfWhateverTheCpuComputes) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  const fs::path model = test::bundled_model(GetParam());
  const test::GoldenFile file(model);
  test::Golden golden = file.golden(0);
  golden.greedy.resize(std::min<size_t>(golden.greedy.size(), 4));
  const DecoderSpec spec = read_model(*open_model(test::model_in(model))).spec;
  const bool experts = std::ranges::any_of(
      spec.kinds, [](const LayerSpec& layer) { return test::has_experts(layer); });
  for (const char* place : {"experts.*=cpu", "*=host"}) {
    if (!experts && std::string_view(place) != "*=host") continue;
    SCOPED_TRACE(place);
    How how = beside({.place = place, .cpu_rows = 64});
    how.dtype = DtypeChoice::f32;
    const auto tokens = std::ssize(golden.greedy);
    const Outcome exact = run_model(model, golden.ids, tokens, how);
    EXPECT_EQ(exact.greedy, golden.greedy);
    file.expect_float32(exact, golden);
    how.dtype = DtypeChoice::bf16;
    file.expect_bfloat16(run_model(model, golden.ids, 0, how), golden);
  }
}

// Experts with biases and in 4 bits, shared ones, gates, two widths; a window, a state, a tied
// head.
INSTANTIATE_TEST_SUITE_P(Bundled, Hybrid,
                         testing::Values("gpt_oss", "qwen3_5_moe", "glm4_moe", "mixtral",
                                         "granitemoe", "gemma4_text_moe", "llama4_text",
                                         "llama_tied", "phi", "gpt2_noprefix", "jamba_dense"),
                         [](const auto& model) { return std::string(model.param); });

// A wait that is missing shows: each schedule does the device's work at another time.
TEST(HybridPlacement, TheBitsOfAPlacementAreItsOwn) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  test::Random random("hybrid placements");
  test::SmallModel model;
  for (const char* scheme : {"none", "fp8_per_channel", "fp8_per_block", "int8", "fp8_dynamic"}) {
    std::string place;
    for (const char* part : {"layers.0.self_attn", "layers.0.mlp", "layers.1.self_attn",
                             "layers.1.mlp.gate_up_proj", "layers.1.mlp.down_proj", "embed_tokens"})
      place += (place.empty() ? "" : ",") + std::string(part) +
               (random.between(0, 3) > 0 ? "=cpu" : "=device");
    place += ",layers.0.mlp.down_proj=cpu";
    const int64_t rows = random.between(1, 16);
    SCOPED_TRACE(testing::Message() << scheme << ", " << place << ", " << rows << " rows");
    How how{.scheme = scheme, .place = place, .cpu_rows = rows};
    how.chunk = random.between(1, 12);
    const Outcome lazy = run_model(model.path(), kIds, 4, beside(how));
    for (Schedule schedule : {Schedule::eager, Schedule::shuffled}) {
      const Outcome other = run_model(model.path(), kIds, 4, beside(how, schedule));
      EXPECT_EQ(other.logits, lazy.logits);
      EXPECT_EQ(other.greedy, lazy.greedy);
    }
    how.place.clear();
    const Outcome cpu = run_model(model.path(), kIds, 0, how);
    EXPECT_LE(test::relative_difference(lazy, cpu),
              test::most_difference_of_devices(scheme, how.dtype, how.kv_dtype, false));
  }
}

// Many rows cross the link as the CPU has them, and are unpacked there: each format gives the bits
// of weights in the device's memory.
TEST(HybridPlacement, ManyRowsCrossTheLinkAndGiveTheDevicesBits) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  test::SmallModel model;
  auto expect_same = [](const fs::path& path, std::vector<int32_t> ids, How how) {
    SCOPED_TRACE(testing::Message() << path.filename() << " " << how.scheme);
    const Outcome resident =
        run_model(path, ids, 0, {.backend = how.backend, .scheme = how.scheme});
    how.place = "*=host";
    how.cpu_rows = 1;
    EXPECT_EQ(run_model(path, ids, 0, how).logits, resident.logits);
  };
  for (const char* scheme : {"none", "fp8_per_channel", "fp8_per_block", "int8"})
    expect_same(model.path(), kIds, beside({.scheme = scheme}));
  for (const char* format : {"gguf_q2_k", "gguf_nvfp4", "ct_int4_g32_asym", "ct_mxfp4", "gptq_int3",
                             "fp8_phi3_fused", "modelopt_nvfp4_hfq"})
    expect_same(test::source_dir() / "tests/data/formats" / format, {3, 1, 4, 1, 5, 9}, beside({}));
}

// The border: as many rows as the plan says stay, one more crosses.
TEST(HybridPlacement, TheBorderDecidesByTheRowsOfAStep) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  test::SmallModel model;
  Planner planner(test::options_for(model.path(), beside({.place = "layers=host", .cpu_rows = 4})));
  LoadedModel loaded(planner, planner.place(planner.run_shape(24, 12, 4)));
  EXPECT_EQ(loaded.memory_plan().host_sweep_bytes, 0u);
  auto copied_by = [&](size_t rows) {
    const uint64_t before = loaded.stream_report().value().host_bytes;
    Sequence sequence = loaded.runner().new_sequence();
    loaded.runner().logits(
        loaded.runner().step(sequence, std::span(kIds).first(rows), 12).rows_from(0, 1));
    return loaded.stream_report().value().host_bytes - before;
  };
  EXPECT_EQ(copied_by(1), 0u);
  EXPECT_EQ(copied_by(4), 0u);
  EXPECT_GT(copied_by(5), 0u);
  EXPECT_EQ(copied_by(3), 0u);
}

TEST(HybridPlacement, CpuIsNoPlaceWithoutADevice) {
  test::SmallModel model;
  EXPECT_THROW(Planner(test::options_for(model.path(), {.place = "layers=cpu"})), Error);
}

}  // namespace
}  // namespace sluice
