// Steps as graphs of the device: what is recorded once and launched again gives the bits of steps
// that are launched kernel by kernel. On the emulated device, whose graphs keep the arguments that
// kernels had when they were recorded.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "kernels/cuda/simt.h"
#include "src/base/units.h"
#include "src/engine/engine.h"
#include "src/engine/loaded_model.h"
#include "src/engine/step_graphs.h"
#include "tests/engine/graphs.h"
#include "tests/engine/small_model.h"
#include "tests/support/sanitized.h"
#include "tests/support/simt/emulated_backend.h"

namespace sluice {
namespace {

using simt::Schedule;

struct GraphsHow {
  int64_t window = 0;
  simt::DeviceOptions device = {.seed = 3};
  const char* place = "";
};

GraphsHow with(const GraphsHow& how, bool graphs, Schedule schedule = Schedule::lazy) {
  GraphsHow other = how;
  other.device.graphs = graphs;
  other.device.schedule = schedule;
  return other;
}

// A model on a device of its own, for `sequences` of at most `longest` tokens.
class Loaded {
 public:
  Loaded(const GraphsHow& how, int64_t sequences, int64_t longest)
      : model_(how.window), planner_(options(how)) {
    loaded_.emplace(planner_, planner_.place(planner_.run_shape(sequences * (longest + 4), longest,
                                                                sequences, sequences)));
  }
  Planner& planner() { return planner_; }
  LoadedModel& loaded() { return *loaded_; }
  Runner& runner() { return loaded_->runner(); }
  GraphStats graphs() { return runner().graphs(); }

  // Tokens and hash of each request, run together, some later than others.
  std::vector<std::pair<std::vector<int32_t>, uint64_t>> generate(
      const std::vector<Request>& requests) {
    Engine engine(runner(), nullptr, std::ssize(requests));
    std::vector<OutputId> ids;
    for (const Request& r : requests) {
      ids.push_back({engine.add(r), 0});
      engine.step({});
    }
    while (!engine.idle()) engine.step({});
    std::vector<std::pair<std::vector<int32_t>, uint64_t>> results;
    for (OutputId id : ids) {
      RequestResult r = engine.take(id);
      results.emplace_back(r.ids, r.logits_hash);
    }
    return results;
  }

 private:
  ModelOptions options(const GraphsHow& how) const {
    ModelOptions o;
    o.model = model_.path();
    o.threads = 2;
    o.block_size = 4;
    o.max_model_len = 1000;
    o.dtype = DtypeChoice::bf16;
    if (*how.place != 0) o.place = parse_place_rules(how.place);
    o.backend = simt::make_emulated_backend(how.device);
    o.cpu_rows = 0;  // all crosses the link
    return o;
  }
  test::SmallModel model_;
  Planner planner_;
  std::optional<LoadedModel> loaded_;
};

Request request(int32_t first, int32_t prompt, int64_t max_tokens) {
  Request r;
  for (int32_t i = 0; i < prompt; ++i) r.prompt.push_back((first * 53 + i * 31) % 67);
  r.max_tokens = max_tokens;
  return r;
}

// Batches of one to four, of sequences of different lengths.
std::vector<Request> mixed() {
  std::vector<Request> requests{request(1, 20, 14), request(2, 3, 4), request(3, 33, 9),
                                request(4, 1, 11)};
  requests[2].sampling.temperature = 0.8;
  requests[2].sampling.seed = 5;
  return requests;
}

TEST(CudaGraphs, SameBitsInMixedBatches) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  for (int64_t window : {0, 17}) {
    SCOPED_TRACE(window);
    Loaded without(with({.window = window}, false), 4, 64);
    const auto expected = without.generate(mixed());
    const auto again = without.generate({request(1, 20, 14)});  // with what the KV cache holds
    EXPECT_EQ(without.graphs().launched, 0);
    for (Schedule schedule : {Schedule::lazy, Schedule::shuffled}) {
      Loaded loaded(with({.window = window}, true, schedule), 4, 64);
      EXPECT_EQ(loaded.generate(mixed()), expected);
      EXPECT_GE(loaded.graphs().captured, 2);
      EXPECT_GE(loaded.graphs().launched, loaded.graphs().captured + 5);
      EXPECT_EQ(loaded.generate({request(1, 20, 14)}), again);  // and graphs that are there
    }
  }
}

// Logits of each token from the second on.
std::vector<std::vector<float>> decode(Runner& runner, Sequence& sequence,
                                       const std::vector<int32_t>& ids) {
  std::vector<std::vector<float>> rows;
  for (const int32_t& id : ids) {
    Tensor logits = runner.logits(runner.decode(sequence, {&id, 1}));
    rows.emplace_back(logits.row<float>(0), logits.row<float>(0) + logits.cols);
  }
  return rows;
}

// One recorded step serves sequences with other tokens, positions and blocks: whatever a step
// passed by value would be the first one's.
TEST(CudaGraphs, AStepThatIsLaunchedAgainReadsItsOwnPositions) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  const std::vector<int32_t> first{5, 17, 30, 2}, second{44, 9, 61, 7, 8, 50, 33, 12, 5, 17};
  std::vector<std::vector<float>> results[2];
  for (bool graphs : {false, true}) {
    Loaded loaded(with({}, graphs), 2, 40);
    Runner& runner = loaded.runner();
    Sequence a = runner.new_sequence(), b = runner.new_sequence();
    auto& rows = results[graphs ? 1 : 0];
    rows = decode(runner, a, first);
    for (auto& row : decode(runner, b, second)) rows.push_back(row);
    for (auto& row : decode(runner, a, second)) rows.push_back(row);
    EXPECT_EQ(loaded.graphs().captured, graphs ? 1 : 0);
    EXPECT_EQ(loaded.graphs().launched, graphs ? std::ssize(rows) - 1 : 0);
  }
  EXPECT_EQ(results[1], results[0]);
  EXPECT_NE(results[1][2], results[1][3]);
}

// Rows of one sequence attend to each other, those of two do not: the graph of one is not launched
// for the other.
TEST(CudaGraphs, RowsOfOneSequenceAreNotThoseOfTwo) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  std::vector<std::vector<float>> results[2];
  for (bool graphs : {false, true}) {
    Loaded loaded(with({}, graphs), 3, 40);
    Runner& runner = loaded.runner();
    loaded.generate({request(1, 6, 6), request(2, 4, 6)});
    EXPECT_GE(loaded.graphs().captured, graphs ? 1 : 0);
    Sequence sequence = runner.new_sequence();
    for (int32_t id = 1; id < 7; id += 2) {
      const std::array ids{id, id + 1};
      const Tensor logits = runner.logits(runner.decode(sequence, ids));
      const float* last = logits.row<float>(logits.rows - 1);
      results[graphs ? 1 : 0].emplace_back(last, last + logits.cols);
    }
  }
  EXPECT_EQ(results[1], results[0]);
}

// A sequence that grows beyond what its graph was launched for gets another one.
TEST(CudaGraphs, SequencesGrowAcrossPartitions) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  const std::vector<Request> requests{request(1, 505, 12), request(2, 3, 15)};
  Loaded without(with({}, false), 2, 520);
  Loaded loaded(with({}, true), 2, 520);
  EXPECT_EQ(loaded.generate(requests), without.generate(requests));
  EXPECT_EQ(loaded.graphs().captured, 3);  // both, both beyond 512, the second alone
}

// Between layers whose weights come from elsewhere, those that stay are recorded.
TEST(CudaGraphs, LayersThatStayAreRecordedBesideStreamedOnes) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  const std::vector<Request> requests{request(1, 6, 5), request(2, 2, 4)};
  Loaded resident({}, 2, 16);
  const auto expected = resident.generate(requests);
  const GraphStats whole = resident.graphs();
  EXPECT_GT(whole.captured, 0);
  struct Case {
    const char* place;
    int64_t stretches;  // of layers that stay
  };
  for (Case c : {Case{"layers.1=disk", 1}, Case{"layers.1=host", 1}, Case{"layers.0.mlp=host", 1},
                 Case{"layers.0=disk,embed_tokens=host", 1}, Case{"layers=disk", 0}}) {
    SCOPED_TRACE(c.place);
    Loaded streamed(with({.place = c.place}, true, Schedule::shuffled), 2, 16);
    EXPECT_TRUE(streamed.loaded().memory_plan().streams());
    EXPECT_EQ(streamed.generate(requests), expected);
    EXPECT_EQ(streamed.graphs().captured, c.stretches * whole.captured);
    EXPECT_EQ(streamed.graphs().launched, c.stretches * whole.launched);
  }
}

// Layers with experts are recorded where the kernels compute these at once: not in float32, and not
// where one of them is streamed. In glm4_moe all layers but the first have some.
TEST(CudaGraphs, LayersWithExpertsAreRecordedWhereNothingWaits) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  struct Case {
    const char* model;
    DtypeChoice dtype;
    const char* place;
    int64_t graphs;
  };
  for (const Case& c :
       {Case{"mixtral", DtypeChoice::bf16, "", 1}, Case{"mixtral", DtypeChoice::f32, "", 0},
        Case{"mixtral", DtypeChoice::bf16, "experts.1=host", 0},
        Case{"granitemoe", DtypeChoice::bf16, "", 1}, Case{"qwen3_5_moe", DtypeChoice::bf16, "", 1},
        Case{"glm4_moe", DtypeChoice::f32, "", 1}}) {
    SCOPED_TRACE(testing::Message() << c.model << " " << c.place);
    ModelOptions options;
    options.model = test::bundled_model(c.model);
    options.threads = 2;
    options.dtype = c.dtype;
    if (*c.place != 0) options.place = parse_place_rules(c.place);
    options.backend = simt::make_emulated_backend({.seed = 3, .graphs = true});
    test::expect_graphs_give_the_same_bits(options, c.graphs);
  }
}

// Graphs' memory is in the ledger, and goes with the runner.
TEST(CudaGraphs, TheirMemoryIsCounted) {
  GraphsHow how;
  how.device.graph_bytes = MiB;
  Loaded loaded(how, 4, 64);
  Ledger& ledger = loaded.planner().machine().ledger();
  loaded.generate(mixed());
  const uint64_t graphs = static_cast<uint64_t>(loaded.graphs().captured) * MiB;
  EXPECT_GT(graphs, 0u);
  EXPECT_EQ(ledger.peak(Place::device), loaded.loaded().memory_plan().device.peak() + graphs);
  loaded.loaded().release();
  EXPECT_EQ(ledger.used(Place::device), 0u);
}

__global__ void set_kernel(int64_t* at, int64_t value) { *at = value; }

class StepGraphsTest : public testing::Test {
 protected:
  StepGraphsTest() {
    device_->reserve(MiB);
    memory_ = device_->memory(ledger_, Use::weights, "test", 4096, Buffer::Touch::now);
    ledger_.set_budget(Place::device, 3 * kGraph + memory_.bytes().size());
  }
  void run(StepGraphs& graphs, int64_t rows) {
    auto* at = reinterpret_cast<int64_t*>(memory_.data());
    graphs.run({rows, 512}, [&] { cuda::launch(set_kernel, {}, stream_->handle(), at, rows); });
    int64_t value = 0;
    stream_->copy(reinterpret_cast<std::byte*>(&value), memory_.data(), sizeof value);
    EXPECT_EQ(value, rows);
  }

  static constexpr uint64_t kGraph = 1000;
  Ledger ledger_;
  std::unique_ptr<simt::EmulatedDevice> device_ =
      simt::make_emulated_device({.graph_bytes = kGraph});
  Buffer memory_;
  std::unique_ptr<DeviceStream> stream_ = device_->stream();
};

TEST_F(StepGraphsTest, TheOldestMakeRoomInTheBudget) {
  StepGraphs graphs(*device_, *stream_, ledger_);
  for (int64_t rows = 1; rows <= 5; ++rows) {
    run(graphs, rows);
    EXPECT_EQ(graphs.stats().captured, rows - 1);
    run(graphs, rows);
    EXPECT_EQ(graphs.stats().captured, rows);
    EXPECT_EQ(device_->graphs(), std::min<int64_t>(rows, 3));
  }
  run(graphs, 5);
  run(graphs, 3);
  EXPECT_EQ(graphs.stats().captured, 5);
  run(graphs, 2);  // its graph has gone
  run(graphs, 2);
  EXPECT_EQ(graphs.stats().captured, 6);
  EXPECT_LE(ledger_.peak(Place::device), *ledger_.budget(Place::device));
}

TEST_F(StepGraphsTest, ThereAreFewAtOnce) {
  ledger_.set_budget(Place::device, MiB);
  StepGraphs graphs(*device_, *stream_, ledger_);
  for (int64_t rows = 1; rows <= 40; ++rows) {
    run(graphs, rows);
    run(graphs, rows);
  }
  EXPECT_EQ(device_->graphs(), static_cast<int64_t>(StepGraphs::kMost));
  run(graphs, 40);
  EXPECT_EQ(graphs.stats().captured, 40);
  EXPECT_EQ(graphs.stats().launched, 41);
}

TEST_F(StepGraphsTest, WithoutRoomForOneStepsRunAsTheyAre) {
  ledger_.set_budget(Place::device, memory_.bytes().size() + kGraph - 1);
  StepGraphs graphs(*device_, *stream_, ledger_);
  for (int i = 0; i < 5; ++i) run(graphs, 1);
  EXPECT_EQ(graphs.stats().captured, 0);
  EXPECT_EQ(device_->graphs(), 0);
}

// A failure while a step is recorded is reported, and the stream goes on.
TEST_F(StepGraphsTest, AFailureWhileRecordingEndsTheRecording) {
  StepGraphs graphs(*device_, *stream_, ledger_);
  auto event = device_->event();
  graphs.run({1, 512}, [] {});
  EXPECT_THROW(graphs.run({1, 512}, [&] { stream_->record(*event); }), simt::Fault);
  EXPECT_THROW(graphs.run({1, 512}, [&] { stream_->synchronize(); }), simt::Fault);
  run(graphs, 1);
  EXPECT_EQ(graphs.stats().captured, 1);
}

}  // namespace
}  // namespace sluice
