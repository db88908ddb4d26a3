// Whole models on a real GPU, where there is one: the golden files' tolerances, what the CPU gives
// for every scheme, streamed weights, and what the driver says of memory. Else each test is
// skipped, and says why.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/open_cuda.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/ranks/nccl.h"
#include "tests/engine/golden.h"
#include "tests/engine/graphs.h"
#include "tests/engine/on_ranks.h"
#include "tests/engine/placed.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using test::Outcome;

struct How {
  DtypeChoice dtype = DtypeChoice::bf16;
  const char* scheme = "none";
  std::optional<DType> kv_dtype = {};
  int64_t chunk = 512;
  std::string place = {};
  fs::path spill = {};
};

constexpr int kThreads = 2;  // of the CPU: tools/gpu-check runs several processes at once

class Gpu : public testing::TestWithParam<fs::path> {
 protected:
  void SetUp() override {
    try {
      backend_ = open_cuda(0);
    } catch (const Error& e) {
      GTEST_SKIP() << e.what();
    }
  }
  static ModelOptions test_options(std::shared_ptr<Backend> backend) {
    ModelOptions options;
    options.model = test::model_in(GetParam());
    options.backend = std::move(backend);
    options.threads = kThreads;
    return options;
  }
  Outcome run(const std::vector<int32_t>& prompt, int64_t new_tokens, const How& how,
              std::shared_ptr<Backend> backend) {
    ModelOptions options = test_options(std::move(backend));
    options.dtype = how.dtype;
    options.kv_dtype = how.kv_dtype;
    options.quantize.scheme = *find_quant_scheme(how.scheme);
    if (!how.place.empty()) options.place = parse_place_rules(how.place);
    if (!how.spill.empty()) options.spill.directories = {how.spill};
    Planner planner(options);
    int64_t length = std::ssize(prompt);
    LoadedModel loaded(planner,
                       planner.place(planner.run_shape(length + new_tokens, length, length)));
    return test::run_prompt(loaded, prompt, new_tokens, how.chunk);
  }
  Outcome run(const std::vector<int32_t>& prompt, int64_t new_tokens, const How& how) {
    return run(prompt, new_tokens, how, backend_);
  }

  test::GoldenFile file_{GetParam()};
  std::shared_ptr<Backend> backend_;
};

TEST_P(Gpu, Float32LogitsAndGreedyTokens) {
  for (size_t i = 0; i < file_.prompts(); ++i) {
    SCOPED_TRACE(testing::Message() << "prompt " << i);
    test::Golden golden = file_.golden(i);
    Outcome actual = run(golden.ids, std::ssize(golden.greedy), {.dtype = DtypeChoice::f32});
    EXPECT_EQ(actual.greedy, golden.greedy);
    file_.expect_float32(actual, golden);
  }
}

TEST_P(Gpu, Bfloat16WithinItsTolerance) {
  for (size_t i = 0; i < file_.prompts(); ++i) {
    SCOPED_TRACE(testing::Message() << "prompt " << i);
    test::Golden golden = file_.golden(i);
    file_.expect_bfloat16(run(golden.ids, 1, {}), golden);
  }
}

TEST_P(Gpu, SchemesAndCachesGiveWhatTheCpuGives) {
  test::Golden golden = file_.golden(0);
  for (How how : {How{.scheme = "fp8_per_tensor"}, How{.scheme = "fp8_per_channel"},
                  How{.scheme = "fp8_per_block"}, How{.scheme = "fp8_dynamic"},
                  How{.scheme = "int8"}, How{.kv_dtype = DType::f8_e4m3},
                  How{.kv_dtype = DType::f8_e5m2}, How{.chunk = 7}, How{.chunk = 1}}) {
    SCOPED_TRACE(testing::Message() << how.scheme << ", chunks of " << how.chunk);
    for (DtypeChoice dtype : {DtypeChoice::f32, DtypeChoice::bf16}) {
      how.dtype = dtype;
      Outcome gpu = run(golden.ids, 2, how), cpu = run(golden.ids, 2, how, nullptr);
      file_.expect_same_on_devices(gpu, cpu, golden, how.scheme, dtype, how.kv_dtype, true);
    }
  }
}

// Read anew by every pass: from the checkpoint, or from files beside it where that has weights with
// their dimensions exchanged; from host memory; or from both.
// In few rows at a time: products of many are the library's, which may sum a tensor's part, as
// streamed weights are multiplied, in another order than the whole.
TEST_P(Gpu, StreamedWeightsGiveTheSameBits) {
  test::Golden golden = file_.golden(0);
  const std::string half = test::half_on_disk(test_options(backend_));
  for (const char* scheme : {"none", "fp8_per_channel"}) {
    Outcome resident = run(golden.ids, 4, {.scheme = scheme, .chunk = 16});
    for (int i = 0; i < 5; ++i) {  // in whatever order the device does its work this time
      for (const std::string& place : {std::string("*=disk"), std::string("*=host"), half}) {
        test::TempDir spill;
        Outcome streamed = run(
            golden.ids, 4, {.scheme = scheme, .chunk = 16, .place = place, .spill = spill.path()});
        EXPECT_EQ(streamed.logits, resident.logits) << place;
        EXPECT_EQ(streamed.greedy, resident.greedy) << place;
      }
    }
  }
}

TEST_P(Gpu, StepsAsGraphsGiveTheSameBits) {
  test::expect_graphs_give_the_same_bits(test_options(backend_));
}

INSTANTIATE_TEST_SUITE_P(Bundled, Gpu, testing::ValuesIn(test::for_gpus(test::bundled_models())),
                         test::golden_name);
INSTANTIATE_TEST_SUITE_P(Shared, Gpu, testing::ValuesIn(test::for_gpus(test::shared_models())),
                         test::golden_name);

// The driver counts in pieces of 2 MiB.
// Ranks that are threads, each with a GPU of its own, and NCCL between them.
TEST(GpuRanks, HaveTheGoldenLogits) {
  try {
    open_cuda(1);
  } catch (const Error&) {
    GTEST_SKIP() << "needs two GPUs";
  }
  for (const char* name : {"llama_rope_dynamic", "mixtral", "qwen3_5"}) {
    SCOPED_TRACE(name);
    const test::GoldenFile file(test::bundled_model(name));
    const test::Golden golden = file.golden(0);
    std::atomic<int> gpus = 0;
    const test::How how{
        .backend = [&] { return open_cuda(gpus++); },
        .link = [](const Group& group,
                   Device& device) { return join_nccl(group, device, std::chrono::seconds(600)); },
        .dtype = DtypeChoice::f32,
        .threads = kThreads};
    const Outcome outcome = test::run_on_ranks(test::bundled_model(name), golden.ids,
                                               std::ssize(golden.greedy), 2, how);
    EXPECT_EQ(outcome.greedy, golden.greedy);
    file.expect_float32(outcome, golden);
  }
}

TEST(GpuMemory, ADeviceGivesWhatIsReservedAndTakesItBack) {
  std::unique_ptr<Backend> backend;
  try {
    backend = open_cuda(0);
  } catch (const Error& e) {
    GTEST_SKIP() << e.what();
  }
  Device& device = backend->device();
  Ledger ledger;
  device.reserve(MiB);  // the driver loads what clears memory
  device.memory(ledger, Use::weights, "first", MiB, Buffer::Touch::now);
  device.reserve(0);
  uint64_t before = device.free_bytes();
  device.reserve(512 * MiB);
  uint64_t taken = before - device.free_bytes();
  EXPECT_GE(taken, 512 * MiB);
  EXPECT_LE(taken, 514 * MiB);
  {
    Buffer all = device.memory(ledger, Use::weights, "all", 512 * MiB, Buffer::Touch::now);
    EXPECT_THROW(device.memory(ledger, Use::weights, "more", 1, Buffer::Touch::now), Error);
  }
  device.reserve(0);
  EXPECT_GE(device.free_bytes() + 2 * MiB, before);
  EXPECT_THROW(device.reserve(uint64_t{1} << 50), Error);
  device.reserve(MiB);  // a refusal is not the end
}

}  // namespace
}  // namespace sluice
