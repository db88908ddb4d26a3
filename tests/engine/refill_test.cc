// Weights that take the place of others, in the same memory and for the same runner.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "src/engine/engine.h"
#include "src/engine/loaded_model.h"
#include "tests/engine/placed.h"
#include "tests/support/checkpoint.h"

namespace sluice {
namespace {

constexpr int64_t kRefillPrompt = 20, kRefillTokens = 6;

std::vector<int32_t> prompt(int64_t vocab) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kRefillPrompt; ++i)
    ids.push_back((i * 31 + 7) % static_cast<int32_t>(vocab));
  return ids;
}

class Refill : public testing::TestWithParam<const char*> {
 protected:
  Refill() {
    test::Random random("refill");
    config_ = test::tiny_config();
    config_["hidden_size"] = 128;
    config_["intermediate_size"] = 512;
    config_["num_hidden_layers"] = 4;
    for (const char* name : {"a", "b"}) write(name, config_, test::tiny_tensors(config_, random));
  }

  void write(const char* name, const Json& config, const std::vector<test::TinyTensor>& tensors) {
    std::filesystem::create_directories(dir_ / name);
    test::write_checkpoint(dir_ / name, config, tensors);
  }

  ModelOptions options(const char* name) const {
    ModelOptions o;
    o.model = dir_ / name;
    o.threads = 2;
    o.block_size = 4;
    const std::string how = GetParam();
    if (how != "resident") {
      o.quantize.scheme = *find_quant_scheme("fp8_per_channel");
      o.quantize.roles = {ParamRole::linear};
    }
    if (how == "spilled") o.spill.directories = {dir_ / "spill"};
    if (streams()) o.place = parse_place_rules("mlp=disk");
    return o;
  }
  static RunShape shape(const Planner& planner) {
    return planner.run_shape(8 * kRefillPrompt, kRefillPrompt, 4, 2);
  }

  std::unique_ptr<test::Ready> loaded(const char* name) const {
    auto ready = std::make_unique<test::Ready>(options(name), shape);
    EXPECT_EQ(ready->model.memory_plan().streams(), streams());
    return ready;
  }
  static bool streams() { return std::string(GetParam()).starts_with("s"); }

  static void refill(LoadedModel& loaded, const std::filesystem::path& model) {
    loaded.refill(model, {});
  }

  // The logits of the prompt's last token.
  static std::string bits(LoadedModel& loaded) {
    Runner& runner = loaded.runner();
    return test::logits_bytes(runner, prompt(runner.vocab_size()));
  }
  static RequestResult generate(Engine& engine, int64_t vocab) {
    Request request;
    request.prompt = prompt(vocab);
    request.max_tokens = kRefillTokens;
    const int64_t id = engine.add(std::move(request));
    while (!engine.idle()) engine.step({});
    return engine.take({id, 0});
  }
  struct Outcome {
    std::string bits;
    uint64_t hash = 0;
    bool operator==(const Outcome&) const = default;
  };
  static Outcome outcome(LoadedModel& loaded, Engine& engine) {
    return {bits(loaded),
            generate(engine, loaded.planner().checkpoint().spec().vocab_size).logits_hash};
  }
  Outcome fresh(const char* name) const {
    const std::unique_ptr<test::Ready> ready = loaded(name);
    Engine engine(ready->model.runner(), nullptr, 2);
    return outcome(ready->model, engine);
  }

  test::TempDir dir_;
  Json config_;
};

TEST_P(Refill, GivesTheOthersLogitsToTheSameEngine) {
  const Outcome a = fresh("a"), b = fresh("b");
  EXPECT_NE(a.bits, b.bits);
  const std::unique_ptr<test::Ready> ready = loaded("a");
  Engine engine(ready->model.runner(), nullptr, 2);
  EXPECT_EQ(outcome(ready->model, engine), a);
  for (int round = 0; round < 2; ++round) {
    refill(ready->model, dir_ / "b");
    EXPECT_EQ(outcome(ready->model, engine), b);
    EXPECT_EQ(outcome(ready->model, engine), b);  // from what it remembers
    refill(ready->model, dir_ / "a");
    EXPECT_EQ(outcome(ready->model, engine), a);
  }
}

TEST_P(Refill, WhatCannotTakeTheirPlaceChangesNothing) {
  test::Random random("refill others");
  Json deeper = config_;
  deeper["num_hidden_layers"] = 5;
  write("deeper", deeper, test::tiny_tensors(deeper, random));
  std::vector<test::TinyTensor> some = test::tiny_tensors(config_, random);
  some.pop_back();
  write("some", config_, some);
  const std::unique_ptr<test::Ready> ready = loaded("a");
  const std::string before = bits(ready->model);
  for (const char* name : {"deeper", "some", "nowhere"}) {
    try {
      refill(ready->model, dir_ / name);
      FAIL() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::refused) << e.what();
    }
    EXPECT_EQ(bits(ready->model), before) << name;
  }
}

TEST_P(Refill, AFailedOneLeavesAnEmptyModelThatSaysSo) {
  test::Random random("refill damaged");
  std::vector<test::TinyTensor> tensors = test::tiny_tensors(config_, random);
  for (test::TinyTensor& t : tensors) {
    if (t.name.find("norm") == std::string::npos) continue;  // is never streamed
    const uint16_t nan = 0x7fc0;
    std::memcpy(t.bytes.data(), &nan, sizeof nan);
  }
  write("damaged", config_, tensors);
  const std::unique_ptr<test::Ready> ready = loaded("a");
  Engine engine(ready->model.runner(), nullptr, 2);
  const Outcome before = outcome(ready->model, engine);
  const uint64_t used = ready->planner.machine().ledger().used(Place::host);
  EXPECT_THROW(refill(ready->model, dir_ / "damaged"), Error);
  uint64_t weights = 0;
  for (const Ledger::Account& account : ready->planner.machine().ledger().accounts())
    weights += account.use == Use::weights ? account.bytes : 0;
  EXPECT_EQ(weights, 0u);
  auto expect_empty = [&](auto&& use) {
    try {
      use();
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::runtime);
      EXPECT_NE(std::string(e.what()).find("the model has no weights"), std::string::npos);
      EXPECT_NE(std::string(e.what()).find("the checkpoint is damaged"), std::string::npos);
      EXPECT_NE(std::string(e.what()).find("damaged/model.safetensors: "), std::string::npos);
    }
  };
  expect_empty([&] { ready->model.runner(); });
  expect_empty([&] { generate(engine, ready->planner.checkpoint().spec().vocab_size); });
  refill(ready->model, dir_ / "a");
  Engine again(ready->model.runner(), nullptr, 2);
  EXPECT_EQ(outcome(ready->model, again), before);
  EXPECT_LE(ready->planner.machine().ledger().used(Place::host), used);
}

INSTANTIATE_TEST_SUITE_P(How, Refill,
                         testing::Values("resident", "quantized", "streamed", "spilled"),
                         [](const auto& p) { return std::string(p.param); });

}  // namespace
}  // namespace sluice
