// Whole models on the CUDA backend, on an emulated device: its kernels' own
// sources, and streams whose work is done as late and in an order as bad as
// CUDA allows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/plan/sweep.h"
#include "tests/engine/golden_runs.h"
#include "tests/engine/placed.h"
#include "tests/engine/small_model.h"
#include "tests/engine/speculating.h"
#include "tests/support/sanitized.h"
#include "tests/support/simt/emulated_backend.h"
#include "tests/support/simt/emulator.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using simt::Schedule;
using test::How;
using test::options_for;
using test::Outcome;
using test::run_model;

simt::EmulatedDevice& device_of(const Planner& planner) {
  return dynamic_cast<simt::EmulatedDevice&>(planner.machine().backend().device());
}

void expect_planned_peaks(LoadedModel& loaded) {
  const uint64_t planned = loaded.memory_plan().device.peak();
  EXPECT_EQ(loaded.planner().machine().ledger().peak(Place::device), planned);
  EXPECT_EQ(device_of(loaded.planner()).peak_bytes(), planned);
}

// The same on an emulated device.
How emulated(How how = {}, Schedule schedule = Schedule::lazy) {
  how.backend = [=] { return simt::make_emulated_backend({.schedule = schedule, .seed = 17}); };
  how.check = expect_planned_peaks;
  return how;
}

// One of them under sanitizers, as ops are sanitized by their own tests.
std::vector<fs::path> models_of_paths() {
  std::vector<fs::path> models = test::for_gpus(test::models_with_own_parts());
  if (test::is_brief()) {
    std::erase_if(models, [](const fs::path& model) { return model.filename() != "qwen3_5"; });
  }
  return models;
}

std::vector<fs::path> models_streamed() {
  if (test::runs_all()) return test::for_gpus(test::models_with_own_parts());
  if (test::kSanitized) return {};
  return test::models_stored_otherwise();  // an emulated load takes seconds
}

std::vector<test::Streamed> streamed_runs() {
  if (!test::runs_all()) return {{"none", test::kHalfOnDisk}, {"fp8_per_channel", "*=disk"}};
  std::vector<test::Streamed> runs;
  for (const char* scheme : {"none", "fp8_per_channel"})
    for (const char* place : {"*=disk", "*=host", test::kHalfOnDisk})
      runs.push_back({scheme, place});
  return runs;
}

}  // namespace

const test::GoldenRuns& test::golden_runs() {
  static const GoldenRuns runs{
      .how = emulated(),
      .bundled = is_brief() ? models_of_paths() : for_gpus(bundled_models()),
      .bundled_paths = models_of_paths(),
      .bundled_streamed = models_streamed(),
      .shared = {},
      .float32_isas = {Isa::automatic},
      .bfloat16_isas = {Isa::automatic},
      .most_tokens = 8,
      .most_prompts = [](const fs::path& model) -> size_t {
        return runs_all() || (!kSanitized && std::ranges::count(models_of_paths(), model) > 0)
                   ? 1000
                   : 1;
      },
      .streamed_dtypes = {DtypeChoice::bf16},
      .streamed = streamed_runs(),
      .starts = 1,
      .streams_the_longest = false};
  return runs;
}

namespace {

class CudaPaths : public testing::TestWithParam<fs::path> {
 protected:
  test::GoldenFile file_{GetParam()};
};

// The judgement of a GPU (tests/gpu/gpu_test.cc), for schemes in which codes fall otherwise.
TEST_P(CudaPaths, SchemesGiveWhatTheCpuGives) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  const test::Golden golden = file_.golden(0);
  for (const char* scheme : {"fp8_per_channel", "fp8_dynamic"}) {
    SCOPED_TRACE(scheme);
    How how = emulated();
    how.scheme = scheme;
    const How on_cpu{.scheme = scheme};
    file_.expect_same_on_devices(run_model(GetParam(), golden.ids, 2, how),
                                 run_model(GetParam(), golden.ids, 2, on_cpu), golden, scheme,
                                 how.dtype, how.kv_dtype, false);
  }
}

// Experts, a recurrent state, both, and none of them.
std::vector<fs::path> models_of_schemes() {
  if (test::runs_all()) return test::for_gpus(test::bundled_models());
  std::vector<fs::path> models;
  for (const char* name : {"glm4_moe", "jamba_dense", "qwen3_5_moe", "llama_rope_dynamic"})
    models.push_back(test::bundled_model(name));
  return models;
}

INSTANTIATE_TEST_SUITE_P(Bundled, CudaPaths, testing::ValuesIn(models_of_schemes()),
                         test::golden_name);

// A prompt for a small model.
const std::vector<int32_t> kIds{5, 17, 30, 2, 44, 9, 61, 7, 8, 50, 33, 12};

TEST(CudaEngine, HeadsThatNoKernelTakesAreRefused) {
  const std::unique_ptr<Backend> backend = simt::make_emulated_backend({});
  KvCache cache{.kv_heads = 1, .key_dim = 576, .value_dim = 512, .latent = true};
  backend->check_supported(cache);
  for (const auto& [dim, tokens] : {std::pair{578, 16}, {1028, 16}, {12, 5}}) {
    cache.key_dim = dim;
    cache.dtype = DType::f8_e4m3;
    cache.key_scale = cache.value_scale = 1;
    cache.block_size = tokens;
    try {
      backend->check_supported(cache);
      ADD_FAILURE() << dim << " elements are accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::refused);
      EXPECT_THAT(e.what(), testing::HasSubstr("--device cuda"));
    }
  }
}

// Launches of a step with one row: the product of q, k and v behind its norm; rotation, cache and
// attention; a product that is added; the product of gate and up, behind its norm and activated; a
// product that is added.
TEST(CudaEngine, ADenseLayerIsFiveLaunches) {
  auto of_a_step = [](int64_t layers) {
    test::SmallModel model(0, 67, 1, layers);
    Planner planner(options_for(model.path(), emulated()));
    LoadedModel loaded(planner, planner.place(planner.run_shape(12, 4, 1)));
    Sequence sequence = loaded.runner().new_sequence();
    int64_t before = 0;
    for (const int32_t id : {5, 17}) {
      before = simt::counts().launches;
      loaded.runner().logits(loaded.runner().decode(sequence, {&id, 1}));
    }
    return simt::counts().launches - before;
  };
  EXPECT_EQ(of_a_step(2) - of_a_step(1), 5);
}

// Every order of work that events and streams allow gives the same bits:
// nothing relies on more.
TEST(CudaEngine, SameBitsInEveryOrderOfWork) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  test::SmallModel model(5);
  const Outcome lazy = run_model(model.path(), kIds, 4, emulated());
  for (Schedule schedule : {Schedule::eager, Schedule::shuffled}) {
    Outcome other = run_model(model.path(), kIds, 4, emulated({}, schedule));
    EXPECT_EQ(other.logits, lazy.logits);
    EXPECT_EQ(other.greedy, lazy.greedy);
  }
}

// Takes as little of the device as possible: with fewer tile buffers than tiles, each is written
// again and again while the device may still have to read it.
TEST(CudaEngine, StreamedWeightsGiveTheSameBits) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  test::SmallModel model;
  auto logits = [&](const How& how) {
    ModelOptions options = options_for(model.path(), how);
    if (!how.place.empty()) {
      Planner probe(options);
      uint64_t least = probe.smallest(probe.run_shape(12, 12, 6)).device.peak();
      options = options_for(model.path(), how);
      options.device_memory = std::to_string(least);
    }
    Planner planner(options);
    LoadedModel loaded(planner, planner.place(planner.run_shape(12, 12, 6)));
    const MemoryPlan& plan = loaded.memory_plan();
    EXPECT_EQ(plan.streams(), !how.place.empty());
    const ReadPlan& read = loaded.read_plan();
    EXPECT_TRUE(!plan.streams() || tile_buffers(read) < read.sweep_tiles());
    Outcome result = test::run_prompt(loaded, kIds, 0, 6);
    EXPECT_EQ(device_of(planner).peak_bytes(), plan.device.peak());
    return result.logits;
  };
  for (const char* scheme : {"none", "fp8_per_tensor"}) {
    const auto resident = logits(emulated({.scheme = scheme}));
    for (Schedule schedule : {Schedule::lazy, Schedule::eager, Schedule::shuffled}) {
      SCOPED_TRACE(testing::Message() << scheme << ", " << static_cast<int>(schedule));
      EXPECT_EQ(logits(emulated({.scheme = scheme, .place = "*=disk"}, schedule)), resident);
    }
  }
}

// Input-major codes, on disk and in host memory: the first start writes the spill cache from which
// both come.
TEST(CudaEngine, InputMajorCodesComeFromTheSpillCache) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  for (const char* name : {"gptq_int4_g32_actorder", "awq_int4_g64"}) {
    SCOPED_TRACE(name);
    const test::TempDir spill;
    auto logits = [&](const std::string& place) {
      const How how = emulated({.place = place, .spill = spill.path()});
      return run_model(test::source_dir() / "tests/data/formats" / name, {3, 1, 4, 1}, 2, how)
          .logits;
    };
    const auto resident = logits("");
    EXPECT_TRUE(std::filesystem::is_empty(spill.path()));
    for (int start = 0; start < 2; ++start)
      EXPECT_EQ(logits("layers.0=disk,layers.1=host,layers.1.mlp=disk"), resident);
    EXPECT_FALSE(std::filesystem::is_empty(spill.path()));
  }
}

// Steps whose logits nobody asks for: the next one is prepared while the device is still at them.
TEST(CudaEngine, StepsNeedNobodyToWaitBetweenThem) {
  test::SmallModel model;
  for (Schedule schedule : {Schedule::lazy, Schedule::shuffled}) {
    Planner planner(options_for(model.path(), emulated({}, schedule)));
    LoadedModel loaded(planner, planner.place(planner.run_shape(24, 4, 4, 2)));
    std::vector<float> last;  // first, so that the cache holds nothing yet
    {
      Sequence sequence = loaded.runner().new_sequence();
      Tensor logits = loaded.runner().logits(loaded.runner().prefill(sequence, kIds, {}));
      last.assign(logits.row<float>(0), logits.row<float>(0) + logits.cols);
    }
    EXPECT_EQ(last, test::run_prompt(loaded, kIds, 0, 4).logits.back());
  }
}

// Encoded on the device and computed there, a scheme gives what it gives on the CPU; so do the
// types of the KV cache, and prompts in parts.
TEST(CudaEngine, SchemesAndCachesGiveWhatTheCpuGives) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  test::SmallModel model;
  for (How how : {How{.scheme = "fp8_per_tensor"}, How{.scheme = "fp8_per_channel"},
                  How{.scheme = "fp8_per_block"}, How{.scheme = "fp8_dynamic"},
                  How{.scheme = "fp8_dynamic_per_block"}, How{.scheme = "int8"},
                  How{.kv_dtype = DType::f8_e4m3}, How{.kv_dtype = DType::f8_e5m2},
                  How{.chunk = 7, .kv_dtype = DType::f32}, How{.chunk = 1},
                  How{.block_size = 5,
                      .scheme = "fp8_per_block",
                      .norms_too = true,
                      .kv_dtype = DType::f8_e4m3}}) {
    SCOPED_TRACE(testing::Message() << how.scheme << ", chunks of " << how.chunk);
    for (DtypeChoice dtype : {DtypeChoice::f32, DtypeChoice::bf16}) {
      how.dtype = dtype;
      Outcome device = run_model(model.path(), kIds, 2, emulated(how));
      Outcome cpu = run_model(model.path(), kIds, 2, how);
      EXPECT_LE(test::relative_difference(device, cpu),
                test::most_difference_of_devices(how.scheme, dtype, how.kv_dtype, false));
    }
  }
}

// More sequences than the cache has room for: blocks go to host memory and come back.
TEST(CudaEngine, SwapsBlocksToHostMemory) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  test::SmallModel model;
  ModelOptions options = options_for(model.path(), emulated({}, Schedule::shuffled));
  options.block_size = 4;
  options.swap.host_bytes = MiB;
  options.kv_bytes = 12 * KiB;
  Planner planner(options);
  RunShape shape = planner.run_shape(4 * 40, 12, 4, 4);
  LoadedModel loaded(planner, planner.place(shape));
  // Costs that make computing a block slower than bringing it back.
  const SoloGroup alone;
  Runner runner(*planner.checkpoint().model().root, planner.machine().ledger(),
                loaded.memory_plan(), shape, {1, {0, 0.01, 0.1}, {0, 0.01, 0.1}}, {alone, alone});
  auto generate = [&](const std::vector<std::vector<int32_t>>& prompts) {
    Engine engine(runner, nullptr, 4);
    std::vector<OutputId> ids;
    for (const auto& prompt : prompts) {
      Request request;
      request.prompt = prompt;
      request.max_tokens = 24;
      ids.push_back({engine.add(request), 0});
    }
    while (!engine.idle()) engine.step({});
    std::vector<std::vector<int32_t>> texts;
    for (OutputId id : ids) texts.push_back(engine.take(id).ids);
    return texts;
  };
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t p = 0; p < 4; ++p) {
    prompts.emplace_back();
    for (int32_t i = 0; i < 12; ++i) prompts.back().push_back((p * 97 + i * 31) % 67);
  }
  auto together = generate(prompts);
  EXPECT_GT(runner.blocks().stats().restored, 0);
  for (size_t p = 0; p < prompts.size(); ++p) EXPECT_EQ(generate({prompts[p]})[0], together[p]);
}

// The likeliest token, or the largest logits, are found on the device, and the tokens are what the
// host makes of the rows of logits, which it needs for `rank`. The last row comes for its hash.
TEST(CudaEngine, TokensNeedFewLogitsOnTheHost) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  test::SmallModel model(0, 517);
  Planner planner(options_for(model.path(), emulated()));
  LoadedModel loaded(planner, planner.place(planner.run_shape(4 * 40, 12, 4, 4)));
  constexpr uint64_t kTokens = 20;
  auto generate = [&](const std::vector<SamplingParams>& sampling, bool rank, uint64_t& bytes) {
    const uint64_t before = device_of(planner).bytes_out();
    Engine engine(loaded.runner(), nullptr, 4);
    std::vector<OutputId> ids;
    for (const SamplingParams& params : sampling) {
      Request request;
      request.prompt = {5, 17, static_cast<int32_t>(30 + ids.size()), 2};
      request.max_tokens = kTokens;
      request.rank = rank;
      request.sampling = params;
      ids.push_back({engine.add(request), 0});
    }
    while (!engine.idle()) engine.step({});
    std::vector<std::pair<std::vector<int32_t>, uint64_t>> results;
    for (OutputId id : ids) {
      RequestResult r = engine.take(id);
      results.emplace_back(r.ids, r.logits_hash);
    }
    bytes = device_of(planner).bytes_out() - before;
    return results;
  };
  const uint64_t row =
      static_cast<uint64_t>(planner.checkpoint().model().root->logits_cols()) * sizeof(float);
  const uint64_t top = kTopTokens * sizeof(TokenLogit) + sizeof(int32_t);
  const SamplingParams greedy, sampled{.temperature = 0.9, .top_k = 20};
  const std::vector<std::vector<SamplingParams>> cases{
      {greedy}, {sampled}, {greedy, greedy}, {greedy, sampled, greedy, sampled}};
  const std::vector<uint64_t> of_token{sizeof(TokenLogit), top, 2 * sizeof(TokenLogit)};
  for (size_t i = 0; i < cases.size(); ++i) {
    uint64_t with_rows = 0, without = 0;
    const auto expected = generate(cases[i], true, with_rows);
    EXPECT_EQ(generate(cases[i], false, without), expected);
    EXPECT_EQ(with_rows, cases[i].size() * kTokens * row);
    if (i >= of_token.size()) continue;
    EXPECT_EQ(without, kTokens * of_token[i] + cases[i].size() * row);
  }
}

// Rows of few values come to the host, in as many pieces as the memory for logits makes of them.
TEST(CudaEngine, VectorsOfPromptsAreThoseOfTheCpu) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  for (int64_t vocab : {67, 19}) {  // fewer than a row has values
    test::SmallModel model(0, vocab);
    std::vector<std::vector<float>> vectors[2];
    for (bool on_device : {false, true}) {
      const How how{.dtype = DtypeChoice::f32};
      Planner planner(options_for(model.path(), on_device ? emulated(how) : how));
      LoadedModel loaded(planner, planner.place(planner.run_shape(2 * 40, 5, 1, 2)));
      Engine engine(loaded.runner(), nullptr, 2);
      std::vector<OutputId> ids;
      for (Pooling pooling : {Pooling::last, Pooling::mean}) {
        Request request;
        request.prompt = {5, 17, 3, 2, 9, 11, 4, 1};
        request.pooling = pooling;
        ids.push_back({engine.add(request), 0});
      }
      while (!engine.idle()) engine.step({});
      for (OutputId id : ids) vectors[on_device ? 1 : 0].push_back(engine.take(id).embedding);
    }
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(vectors[1][i].size(), 40u);
      for (size_t j = 0; j < 40; ++j) EXPECT_NEAR(vectors[1][i][j], vectors[0][i][j], 1e-3F);
    }
  }
}

TEST(CudaEngine, ARefusalNamesTheDeviceMemoryThatIsEnough) {
  ModelOptions options = options_for(test::bundled_model("llama_tied"), emulated());
  options.device_memory = "1MiB";
  std::string refusal;
  {
    Planner planner(options);
    try {
      planner.place(planner.run_shape(110, 100, 1));
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::no_fit);
      refusal = e.what();
    }
  }
  size_t at = refusal.find("--device-memory ");
  ASSERT_NE(at, std::string::npos) << refusal;
  options.device_memory = refusal.substr(at + 16, refusal.find(' ', at + 16) - at - 16);
  Planner planner(options);
  LoadedModel loaded(planner, planner.place(planner.run_shape(110, 100, 1)));
  EXPECT_LE(loaded.runner().max_rows(), 16);  // with the smallest buffers
}

// A draft model shares the device with it, and changes nothing but the passes.
TEST(CudaEngine, ADraftModelOnTheDevice) {
  constexpr int64_t kPrompt = 6, kTokens = 20;
  test::SmallModel model;
  std::vector<int32_t> texts[2];
  for (bool with_draft : {false, true}) {
    ModelOptions options =
        options_for(model.path(), emulated({.place = "*=host"}, Schedule::shuffled));
    ModelOptions draft = options;
    draft.place.clear();
    test::Speculating both(options, with_draft ? &draft : nullptr, kPrompt, kTokens);
    Planner& planner = both.planner;
    LoadedModel& loaded = *both.loaded;
    Engine engine(loaded.runner(), nullptr, 1);
    Request request;
    request.prompt = {5, 17, 30, 2, 9, 40};
    request.max_tokens = kTokens;
    request.draft = both.draft();
    OutputId id{engine.add(request), 0};
    while (!engine.idle()) engine.step({});
    texts[with_draft] = engine.take(id).ids;
    EXPECT_EQ(engine.stats().accepted > 0, with_draft);
    EXPECT_EQ(planner.machine().ledger().peak(Place::device), loaded.predicted_device_peak());
    EXPECT_EQ(device_of(planner).peak_bytes(), loaded.predicted_device_peak());
    EXPECT_LE(planner.machine().ledger().peak(Place::host), loaded.predicted_peak());
  }
  EXPECT_EQ(texts[1], texts[0]);
}

TEST(CudaEngine, AModelIsRefusedWithTheDeviceMemoryThatItNeedsBesideItsDraft) {
  ModelOptions options = options_for(test::bundled_model("llama_tied"), emulated());
  options.device_memory = "300KiB";
  Planner planner(options);
  Planner draft(options, planner);
  const RunShape shape = planner.run_shape(20, 6, 1);
  RunShape both = shape;
  draft.place_beside(planner, draft.run_shape(20, 6, 1), both);
  EXPECT_THROW(planner.place(both), Error);
  const uint64_t needed = planner.smallest(both).device.peak();
  EXPECT_GT(needed, planner.smallest(shape).device.peak());
  options.device_memory = std::to_string(needed);
  Planner larger(options);
  Planner beside(options, larger);
  RunShape target = larger.run_shape(20, 6, 1);
  beside.place_beside(larger, beside.run_shape(20, 6, 1), target);
  EXPECT_NO_THROW(larger.place(target));
}

TEST(CudaEngine, LoadsAgainAfterRelease) {
  test::SmallModel model;
  Planner planner(options_for(model.path(), emulated()));
  LoadedModel loaded(planner, planner.place(planner.run_shape(8, 4, 4)));
  std::vector<Outcome> outcomes;
  for (int i = 0; i < 2; ++i) {
    if (i > 0) loaded.reload({});
    outcomes.push_back(test::run_prompt(loaded, {1, 2, 3, 4}, 2, 4));
    loaded.release();
    EXPECT_EQ(planner.machine().ledger().used(Place::device), 0u);
    const Device& device = device_of(planner);  // has all of its memory again
    EXPECT_EQ(device.free_bytes(), device.info().total_bytes);
  }
  EXPECT_EQ(outcomes[0].logits, outcomes[1].logits);
}

}  // namespace
}  // namespace sluice
