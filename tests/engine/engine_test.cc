// Many requests through one engine: each gets the tokens and logits that it gets alone, whatever
// runs beside it, in chunks of whatever length, from a known prefix or not, preempted or not.
#include "src/engine/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "quant/float8.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/engine/loaded_model.h"
#include "tests/support/kv_scales.h"

namespace sluice {
namespace {

constexpr int64_t kLongestOfEngine = 90;  // tokens of a sequence

// A small model with a KV cache for `sequences` of the longest, and steps of `rows`.
class LoadedWithSwap {
 public:
  LoadedWithSwap(const std::filesystem::path& model, std::optional<DType> kv_dtype,
                 int64_t sequences, int64_t rows, const SwapShape& swap = {})
      : planner_(options(model, kv_dtype, swap)) {
    RunShape shape = planner_.run_shape(sequences * kLongestOfEngine, rows, 5);
    loaded_.emplace(planner_, planner_.place(shape));
    // Costs that make computing a block of so small a model slower than reading it from disk.
    BlockCosts costs{1, {0, 0.01, 0.1}, {0, 0.01, 0.1}};
    runner_.emplace(*planner_.checkpoint().model().root, planner_.machine().ledger(),
                    loaded_->memory_plan(), shape, costs, RankGroups{alone_, alone_});
  }
  Runner& runner() { return *runner_; }

 private:
  static ModelOptions options(const std::filesystem::path& model, std::optional<DType> kv_dtype,
                              const SwapShape& swap) {
    ModelOptions o;
    o.model = model;
    o.kv_dtype = kv_dtype;
    o.swap = swap;
    o.threads = 1;
    o.block_size = 4;
    return o;
  }
  Planner planner_;
  std::optional<LoadedModel> loaded_;
  SoloGroup alone_;
  std::optional<Runner> runner_;
};

Request random_request(test::Random& random, int64_t vocab) {
  Request r;
  int64_t prompt = random.between(1, 50);
  bool common = random.uniform() < 0.5;  // a beginning that others have, too
  for (int64_t i = 0; i < prompt; ++i)
    r.prompt.push_back(
        static_cast<int32_t>(common && i < 30 ? i % 3 : random.between(0, vocab - 1)));
  r.max_tokens = random.between(0, kLongestOfEngine - prompt);
  r.sampling.temperature = random.uniform() < 0.5 ? 0 : 0.8;
  r.sampling.seed = static_cast<uint64_t>(random.between(0, 100));
  r.sampling.repetition_penalty = random.uniform() < 0.3 ? 1.2 : 1;
  if (random.uniform() < 0.3) r.sampling.prompt_logprobs = 2;
  r.lookup = random.uniform() < 0.4;
  r.n = random.uniform() < 0.2 ? 3 : 1;
  r.priority = random.between(-1, 1);
  if (random.uniform() < 0.3) r.sampling.stop_token_ids = {1};
  if (random.uniform() < 0.15) {
    r.n = 1;
    r.max_tokens = 0;
    r.pooling = random.uniform() < 0.5 ? Pooling::mean : Pooling::last;
  }
  return r;
}

using Results = std::map<OutputId, RequestResult>;

// Collects each running continuation's outputs, and at its end its result, which must equal them.
void collect_results(Engine& engine, Results& results) {
  for (const Output& out : engine.step({})) {
    RequestResult& result = results[out.id];
    EXPECT_EQ(result.finish_reason, "") << "an output after the last one";
    result.ids.insert(result.ids.end(), out.ids.begin(), out.ids.end());
    EXPECT_TRUE(out.finished || !out.ids.empty());
    EXPECT_TRUE(out.finished || out.error.empty());
    if (!out.finished) continue;
    RequestResult whole = engine.take(out.id);
    EXPECT_EQ(result.ids, whole.ids);
    EXPECT_EQ(out.error, whole.error);
    result = std::move(whole);
  }
}

Results alone(Runner& runner, const std::vector<Request>& requests) {
  Results all;
  for (size_t i = 0; i < requests.size(); ++i) {
    for (int64_t k = 0; k < requests[i].n; ++k) {
      Engine engine(runner, nullptr, 1);
      Request r = requests[i];
      r.n = 1;
      r.lookup = false;
      r.sampling.seed += static_cast<uint64_t>(k);
      engine.add(r);
      Results one;
      while (!engine.idle()) collect_results(engine, one);
      all.emplace(OutputId{static_cast<int64_t>(i), k}, one.begin()->second);
    }
  }
  return all;
}

void expect_same(const Results& have, const Results& want) {
  ASSERT_EQ(have.size(), want.size());
  for (const auto& [id, result] : want) {
    const RequestResult& other = have.at(id);
    EXPECT_EQ(other.ids, result.ids) << id.request << "." << id.index;
    EXPECT_EQ(other.logits_hash, result.logits_hash);
    EXPECT_EQ(other.finish_reason, result.finish_reason);
    EXPECT_EQ(other.embedding, result.embedding);
    if (id.index > 0) continue;
    ASSERT_EQ(other.prompt_logprobs.size(), result.prompt_logprobs.size());
    for (size_t i = 0; i < result.prompt_logprobs.size(); ++i) {
      EXPECT_EQ(other.prompt_logprobs[i].token.logprob, result.prompt_logprobs[i].token.logprob);
      EXPECT_EQ(other.prompt_logprobs[i].top.size(), 2u);
    }
  }
}

class EngineTest : public testing::TestWithParam<const char*> {
 protected:
  EngineTest() {
    Json config = test::tiny_config();
    config["vocab_size"] = 20;
    const std::string how = GetParam();
    if (how.starts_with("windows")) {
      config["architectures"] = {"MistralForCausalLM"};
      config["sliding_window"] = 11;
      config["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention"};
    }
    if (how == "dynamic") {  // what is stored depends on the prompt's length
      config["max_position_embeddings"] = 16;
      config["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 8.0}};
    } else {
      config["max_position_embeddings"] = 128;
    }
    std::vector<test::TinyTensor> tensors = test::tiny_tensors(config, random_);
    if (how == "windows_fp8_scales") test::add_kv_scales(tensors, 3);
    test::write_checkpoint(dir_.path(), config, tensors);
    for (int i = 0; i < 24; ++i) requests_.push_back(random_request(random_, 20));
  }

  // Every request alone, by itself in a fresh cache.
  Results want() const {
    LoadedWithSwap loaded(dir_.path(), kv_dtype(), 1, kLongestOfEngine);
    return alone(loaded.runner(), requests_);
  }

  static std::optional<DType> kv_dtype() {
    const std::string how = GetParam();
    if (how.find("fp8") == std::string::npos) return std::nullopt;
    return how == "windows_fp8_scales" ? DType::f8_e5m2 : DType::f8_e4m3;
  }

  test::Random random_{"engine"};
  test::TempDir dir_;
  std::vector<Request> requests_;
};

// Blocks that leave the KV cache are forgotten, kept in memory, on disk, or in little memory and on
// disk.
TEST_P(EngineTest, SameBitsAloneAndTogetherWithHundredsOfPreemptions) {
  test::TempDir disk;
  std::array<SwapShape, 4> swaps{SwapShape{}, SwapShape{MiB, 0, {}}, SwapShape{0, MiB, disk.path()},
                                 SwapShape{8 * 4096, MiB, disk.path()}};
  const Results want = this->want();
  // Layers with a window leave more room.
  const bool windows = std::string(GetParam()).starts_with("windows");
  int64_t preemptions = 0, prefixes = 0, restored = 0, lost = 0;
  auto seen = [&] {
    return preemptions > (windows ? 20 : 100) && restored > (windows ? 10 : 60) &&
           lost > (windows ? 0 : 20) && prefixes > 100;
  };
  for (size_t round = 0; round < 8 || !seen(); ++round) {
    ASSERT_LT(round, 80) << preemptions << ", " << restored << ", " << lost << ", " << prefixes;
    // There is room for two of the longest, but up to ten want to run.
    const SwapShape& swap = swaps[round % swaps.size()];
    LoadedWithSwap loaded(dir_.path(), kv_dtype(), 2, random_.between(10, 60), swap);
    Engine engine(loaded.runner(), nullptr, 10);
    Results have;
    for (const Request& r : requests_) {
      engine.add(r);
      while (random_.uniform() < 0.5) collect_results(engine, have);
    }
    while (!engine.idle()) collect_results(engine, have);
    expect_same(have, want);
    preemptions += engine.stats().preemptions;
    prefixes += engine.stats().prefix_tokens;
    BlockStats blocks = engine.stats().blocks;
    if (swap.host_bytes + swap.disk_bytes > 0) {
      restored += blocks.restored;
      EXPECT_LE(blocks.lost, 10) << round;
    } else {
      lost += blocks.lost;
      EXPECT_EQ(blocks.restored, 0) << round;
    }
    EXPECT_TRUE(loaded.runner().blocks().idle());
  }
}

TEST_P(EngineTest, WhatIsCancelledLeavesNoTrace) {
  LoadedWithSwap loaded(dir_.path(), kv_dtype(), 3, 32);
  Engine engine(loaded.runner(), nullptr, 8);
  Results have, want;
  std::map<int64_t, int64_t> steps_left;  // until it is cancelled
  for (const Request& r : requests_) {
    int64_t id = engine.add(r);
    if (random_.uniform() < 0.5) steps_left[id] = random_.between(0, 40);
  }
  for (const auto& [id, result] : this->want()) {
    if (!steps_left.contains(id.request)) want.emplace(id, result);
  }
  while (!engine.idle()) {
    for (auto& [id, left] : steps_left) {
      if (left-- == 0) engine.cancel(id);
    }
    if (!engine.idle()) collect_results(engine, have);
  }
  std::erase_if(have, [&](const auto& entry) { return steps_left.contains(entry.first.request); });
  expect_same(have, want);
  EXPECT_TRUE(loaded.runner().blocks().idle());
}

TEST_P(EngineTest, ASequenceThatCouldNeverRunIsRefusedAtOnce) {
  LoadedWithSwap loaded(dir_.path(), kv_dtype(), 1, 16);
  Engine engine(loaded.runner(), nullptr, 4);
  Request r;
  r.prompt = {1, 2, 3};
  r.max_tokens = 2 * kLongestOfEngine;
  EXPECT_THROW(engine.add(r), Error);
  r.max_tokens = 5;
  r.prompt = {};
  EXPECT_THROW(engine.add(r), Error);
  EXPECT_TRUE(engine.idle());
  EXPECT_TRUE(engine.step({}).empty());
}

TEST(Engine, WhatSamplingTakesIsPlannedAndCounted) {
  test::Random random("sampling memory");
  test::TempDir dir;
  Json config = test::tiny_config();
  test::write_checkpoint(dir.path(), config, test::tiny_tensors(config, random));
  ModelOptions options;
  options.model = dir.path();
  Planner planner(options);
  const int64_t vocab = planner.checkpoint().spec().vocab_size;
  Request greedy;
  greedy.prompt = {1, 2, 3};
  greedy.max_tokens = 2;
  std::vector<Request> others(4, greedy);
  others[0].sampling = {.temperature = 1};
  others[1].sampling = {.repetition_penalty = 1.5};
  others[2].sampling = {.logprobs = 1};
  others[3].rank = true;
  const uint64_t bytes = sampling_bytes(others[0], vocab);
  EXPECT_EQ(sampling_bytes(greedy, vocab), 0u);
  EXPECT_GE(bytes, static_cast<uint64_t>(vocab) * 24);
  for (const Request& r : others) EXPECT_EQ(sampling_bytes(r, vocab), bytes);

  RunShape shape = planner.run_shape(64, 8, 1);
  const uint64_t without = planner.predict(shape).activations;
  shape.sampling_bytes = bytes;
  LoadedModel loaded(planner, planner.place(shape));
  EXPECT_EQ(loaded.memory_plan().activations - without, Buffer::charged_bytes(bytes));
  Engine engine(loaded.runner(), nullptr, 4);
  const uint64_t used = planner.machine().ledger().used(Place::host);
  Results results;
  auto run = [&](const Request& request) {
    engine.add(request);
    while (!engine.idle()) collect_results(engine, results);
  };
  run(greedy);
  EXPECT_EQ(planner.machine().ledger().used(Place::host), used);
  for (const Request& r : others) {
    run(r);
    EXPECT_EQ(planner.machine().ledger().used(Place::host), used + Buffer::charged_bytes(bytes));
  }
}

// One row of the head overflows, upwards or downwards as the sequence has it.
TEST(Engine, LogitsThatAreNotFiniteEndTheirRequestAndNoOther) {
  test::Random random("infinite logits");
  test::TempDir dir;
  Json config = test::tiny_config();
  std::vector<test::TinyTensor> tensors = test::tiny_tensors(config, random);
  auto set_first = [&](const char* name, int64_t row, float value) {
    auto tensor = std::ranges::find(tensors, name, &test::TinyTensor::name);
    uint16_t code = float_to_bf16(value);
    int64_t at = row * tensor->shape.back() * 2;
    tensor->bytes.replace(static_cast<size_t>(at), 2, reinterpret_cast<const char*>(&code), 2);
  };
  set_first("model.norm.weight", 0, 1000);
  set_first("lm_head.weight", 5, 3e38f);
  test::write_checkpoint(dir.path(), config, tensors);
  LoadedWithSwap loaded(dir.path(), std::nullopt, 4, 16);
  Engine engine(loaded.runner(), nullptr, 4);
  Results results;
  for (int32_t id = 0; id < 12; ++id) {
    Request r;
    r.prompt = {id};
    r.max_tokens = 1;
    r.sampling.temperature = id % 2;
    r.sampling.top_k = 3 * (id % 4);
    engine.add(r);
    if (id >= 6) {
      r.sampling = {};
      r.beams.width = 2;
      r.n = 2;
      engine.add(r);
    } else {
      r.prompt.push_back(0);  // the first row's logits are only told of
      r.sampling.prompt_logprobs = 1;
      r.n = 2;
      engine.add(r);
    }
  }
  while (!engine.idle()) collect_results(engine, results);
  ASSERT_EQ(results.size(), 12u + 2 * 12);
  auto ended = [&](const char* reason) {
    return std::ranges::count(std::views::values(results), reason, &RequestResult::finish_reason);
  };
  EXPECT_GE(ended("error"), 3);
  EXPECT_GE(ended("length"), 3);
  EXPECT_EQ(ended("error") + ended("length"), std::ssize(results));
  for (const auto& [id, result] : results) {
    EXPECT_EQ(result.error.empty(), result.finish_reason != "error");
    EXPECT_EQ(result.ids.size(), result.error.empty() ? 1u : 0u);
  }
  EXPECT_TRUE(loaded.runner().blocks().idle());
}

INSTANTIATE_TEST_SUITE_P(How, EngineTest,
                         testing::Values("plain", "dynamic", "fp8", "windows_fp8",
                                         "windows_fp8_scales"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace sluice
