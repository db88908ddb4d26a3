// Models larger than their budget: whatever stays in memory and whatever is streamed, the same
// bits, and never more memory than allowed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/engine/loaded_model.h"
#include "tests/engine/placed.h"
#include "tests/support/checkpoint.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

constexpr int64_t kStreamedPrompt = 24;
constexpr int64_t kSteps = 3;

struct StreamingCase {
  std::filesystem::path model;
  std::string_view scheme = "none";
  std::set<ParamRole> roles{ParamRole::linear};
  io::ReaderKind reader = io::ReaderKind::automatic;
  int threads = 2;
  std::filesystem::path spill = {};

  ModelOptions options() const {
    ModelOptions o;
    o.model = model;
    o.quantize.scheme = *find_quant_scheme(scheme);
    o.quantize.roles = roles;
    o.reader = reader;
    o.threads = threads;
    if (!spill.empty()) o.spill.directories = {spill};
    return o;
  }
};

std::vector<int32_t> prompt_ids(const Planner& planner) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < kStreamedPrompt; ++i)
    ids.push_back((i * 131 + 7) % static_cast<int32_t>(planner.checkpoint().spec().vocab_size));
  return ids;
}

// Logits of the prompt's end and of some steps after it, as bytes; the calls in the order of a
// generation and out of it.
std::string outcome(LoadedModel& loaded) {
  std::string bytes;
  auto keep = [&](Tensor logits) { bytes += test::row_bytes(logits); };
  Runner& runner = loaded.runner();
  Sequence sequence = runner.new_sequence();
  std::vector<int32_t> ids = prompt_ids(loaded.planner());
  Tensor last = runner.prefill(sequence, ids, {});
  keep(runner.logits(last));
  keep(runner.logits(last));  // the head twice: not what the sweep foresees
  for (int64_t i = 0; i < kSteps; ++i) {
    auto id = std::span(ids).subspan(static_cast<size_t>(i), 1);
    Tensor hidden = runner.step(sequence, id, kStreamedPrompt + i + 1);
    if (i != 1) keep(runner.logits(hidden));  // once not at all
  }
  return bytes;
}

RunShape shape_of(const Planner& planner) {
  return planner.run_shape(kStreamedPrompt + kSteps, kStreamedPrompt, 1);
}

std::string resident_outcome(const StreamingCase& c) {
  test::Ready ready(c.options(), shape_of);
  EXPECT_FALSE(ready.model.memory_plan().streams());
  return outcome(ready.model);
}

// Expects the same results in less room than everything takes.
void expect_same_within(const StreamingCase& c, uint64_t room, const std::string& expected) {
  SCOPED_TRACE(std::string(c.scheme) + " in " + format_size(room));
  test::PlacedModel placed = test::placed(c.options(), room, shape_of);
  Planner& planner = *placed.planner;
  const MemoryPlan plan = placed.plan();
  EXPECT_LE(plan.needed(), planner.machine().budget());
  ASSERT_TRUE(plan.streams());
  test::Ready ready(std::move(placed));
  LoadedModel& loaded = ready.model;
  EXPECT_EQ(outcome(loaded), expected);
  EXPECT_LE(planner.machine().ledger().peak(Place::host), plan.peak());
  StreamReport report = loaded.stream_report().value();
  EXPECT_GT(report.io.bytes_read, 0u);
  EXPECT_EQ(report.tiles_used > 0, loaded.read_plan().sweep_tiles() > 0);
  loaded.release();
  for (const ParamPlan& p : loaded.read_plan().params) {
    EXPECT_TRUE(p.param->value.is_meta() && p.param->stream == nullptr) << p.param->path;
  }
}

// Larger than the buffers that streaming takes, in any scheme.
void write_model(const std::filesystem::path& dir, test::Random& random) {
  Json config = test::tiny_config();
  config["hidden_size"] = random.between(300, 350);
  config["intermediate_size"] = random.between(700, 1000);
  config["num_hidden_layers"] = 7;
  config["head_dim"] = random.between(4, 20) * 2;
  config["vocab_size"] = random.between(100, 3000);
  config["attention_bias"] = random.uniform() < 0.5;
  config["mlp_bias"] = random.uniform() < 0.5;
  config["tie_word_embeddings"] = random.uniform() < 0.5;
  std::vector<test::TinyTensor> tensors = test::tiny_tensors(config, random);
  test::write_checkpoint(dir, config, tensors, static_cast<size_t>(random.between(1, 3)));
}

TEST(Streaming, SameBitsForEveryBudget) {
  test::Random random("streamed models");
  for (int round = 0; round < (test::is_brief() ? 1 : 2); ++round) {
    test::TempDir dir;
    write_model(dir.path(), random);
    for (const QuantScheme& scheme : quant_schemes()) {
      if (test::leaves_out(random, 3)) continue;
      StreamingCase c{dir.path(), scheme.name};
      if (random.uniform() < 0.5)
        c.roles = {ParamRole::linear, ParamRole::embedding, ParamRole::head};
      c.threads = static_cast<int>(random.between(1, 3));
      if (random.uniform() < 0.5) c.spill = dir.path() / "spill";
      std::string expected = resident_outcome(c);
      test::Needs n = test::needs(c.options(), shape_of);
      ASSERT_LT(n.smallest, n.resident);
      for (int i = 0; i < 2; ++i) {
        c.reader = std::array{io::ReaderKind::uring, io::ReaderKind::pread,
                              io::ReaderKind::mmap}[static_cast<size_t>(random.between(0, 2))];
        expect_same_within(c, n.at(i == 0 ? 0 : 0.9 * random.uniform()), expected);
      }
    }
  }
}

// Makes a model's MLPs Mixtral's experts, of which a token has two.
void make_experts(int64_t count, Json& config, std::vector<test::TinyTensor>& tensors,
                  test::Random& random) {
  config["architectures"] = {"MixtralForCausalLM"};
  config["model_type"] = "mixtral";
  config["num_local_experts"] = count;
  config["num_experts_per_tok"] = 2;
  std::vector<test::TinyTensor> made;
  for (const test::TinyTensor& t : tensors) {
    const size_t mlp = t.name.find("mlp.");
    if (mlp == std::string::npos) {
      made.push_back(t);
      continue;
    }
    const std::string moe = t.name.substr(0, mlp) + "block_sparse_moe.";
    auto add = [&](const std::string& name, std::vector<int64_t> shape) {
      const int64_t size = shape[0] * shape[1];
      made.push_back(
          {moe + name + ".weight", shape, "BF16", test::random_bf16(random, size, 0.1f)});
    };
    const std::string part = t.name.substr(mlp + 4);
    if (part.starts_with("gate")) add("gate", {count, t.shape[1]});
    const std::string name = part.starts_with("gate") ? "w1" : part.starts_with("up") ? "w3" : "w2";
    for (int64_t e = 0; e < count; ++e) add("experts." + std::to_string(e) + "." + name, t.shape);
  }
  tensors = std::move(made);
}

TEST(Streaming, ExpertsHaveTheSameBitsForEveryBudget) {
  test::Random random("streamed experts");
  test::TempDir dir;
  Json config = test::tiny_config();
  config["hidden_size"] = 320;
  config["intermediate_size"] = 400;
  config["num_hidden_layers"] = 4;
  std::vector<test::TinyTensor> tensors = test::tiny_tensors(config, random);
  make_experts(8, config, tensors, random);
  test::write_checkpoint(dir.path(), config, tensors, 2);
  for (const char* scheme : {"none", "int8"}) {
    StreamingCase c{dir.path(), scheme};
    const std::string expected = resident_outcome(c);
    const test::Needs n = test::needs(c.options(), shape_of);
    ASSERT_LT(n.smallest, n.resident);
    for (double share : {0.0, 0.5 * random.uniform(), 0.5 + 0.4 * random.uniform()}) {
      c.reader = random.uniform() < 0.5 ? io::ReaderKind::uring : io::ReaderKind::pread;
      expect_same_within(c, n.at(share), expected);
    }
  }
}

// Steps that want none, some or all of what is streamed of a layer.
TEST(Streaming, ExpertsHaveTheSameBitsWhereverRulesPutThem) {
  StreamingCase c{test::source_dir() / "tests/data/models/mixtral"};
  const std::string expected = resident_outcome(c);
  for (const char* rules : {"experts.*=disk", "*=disk", "layers.1.*.experts.0-1=disk"}) {
    SCOPED_TRACE(rules);
    ModelOptions options = c.options();
    options.place = parse_place_rules(rules);
    test::Ready ready(options, shape_of);
    EXPECT_EQ(outcome(ready.model), expected);
  }
}

// The outcome of a run whose budget is lowered between steps, if there is a `random`.
std::string shrinking_outcome(LoadedModel& loaded, test::Random* random) {
  Planner& planner = loaded.planner();
  const std::vector<int32_t> ids = prompt_ids(planner);
  // The last budget is the smallest, so that every model ends streaming.
  auto lower = [&](size_t step) {
    if (random == nullptr) return;
    const bool last = step + 1 == kSteps;
    uint64_t least = planner.smallest(shape_of(planner)).needed();
    uint64_t spare = planner.machine().budget() - std::min(planner.machine().budget(), least);
    double share = last ? 1.0 : random->uniform();
    loaded.shrink(planner.machine().budget() -
                  static_cast<uint64_t>(share * static_cast<double>(spare)));
    EXPECT_LE(planner.machine().ledger().used(Place::host), planner.machine().budget());
  };
  return test::logits_bytes(loaded.runner(), ids, std::span(ids).first(kSteps), lower);
}

TEST(Streaming, ABudgetThatIsLoweredWhileRunningCostsSpeedOnly) {
  test::Random random("shrinking budgets");
  for (int round = 0; round < (test::is_brief() ? 1 : 2); ++round) {
    test::TempDir dir;
    write_model(dir.path(), random);
    for (const QuantScheme& scheme : quant_schemes()) {
      if (test::leaves_out(random, 3)) continue;
      SCOPED_TRACE(scheme.name);
      StreamingCase c{dir.path(), scheme.name};
      if (random.uniform() < 0.5) c.spill = dir.path() / "spill";
      test::Needs n = test::needs(c.options(), shape_of);
      ASSERT_LT(n.smallest, n.resident);
      std::string expected;
      {
        test::Ready constant(c.options(), shape_of);
        expected = shrinking_outcome(constant.model, nullptr);
      }
      const uint64_t from = random.uniform() < 0.5 ? n.resident : n.at(0.5);
      test::Ready ready(test::placed(c.options(), from, shape_of));
      LoadedModel& loaded = ready.model;
      const Ledger& ledger = ready.planner.machine().ledger();
      EXPECT_EQ(shrinking_outcome(loaded, &random), expected);
      // Weights that left share their first and last pages with those that stay.
      const auto left = static_cast<uint64_t>(
          std::ranges::count_if(loaded.read_plan().params, &ParamPlan::streamed));
      EXPECT_LE(ledger.peak(Place::host), loaded.predicted_peak() + left * 2 * 4096);
      EXPECT_TRUE(loaded.memory_plan().streams());
      loaded.release();
      EXPECT_LE(ledger.used(Place::host), loaded.memory_plan().runtime);
    }
  }
}

class StreamedModel : public testing::Test {
 protected:
  StreamedModel() {
    test::Random random("a streamed model");
    Json config = test::tiny_config();
    config["hidden_size"] = 256;
    config["intermediate_size"] = 1024;
    config["num_hidden_layers"] = 6;
    config["vocab_size"] = 5000;
    tensors_ = test::tiny_tensors(config, random);
    test::write_checkpoint(dir_.path(), config, tensors_);
    case_.model = dir_.path();
  }
  LoadedModel& load(const ModelOptions& options) {
    ready_.reset();
    test::PlacedModel placed =
        test::placed(options, test::least_room(case_.options(), shape_of), shape_of);
    EXPECT_TRUE(placed.plan().streams());
    ready_ = std::make_unique<test::Ready>(std::move(placed));
    return ready_->model;
  }

  test::TempDir dir_;
  std::vector<test::TinyTensor> tensors_;
  StreamingCase case_;
  std::unique_ptr<test::Ready> ready_;
};

TEST_F(StreamedModel, ReadsTheSweepOnceAPass) {
  LoadedModel& s = load(case_.options());
  outcome(s);
  // Prefill may take several passes, each of whole sweeps without the head.
  uint64_t sweeps =
      1 + kSteps + static_cast<uint64_t>(ceil_div(kStreamedPrompt, s.runner().max_rows()));
  EXPECT_LE(s.stream_report()->tiles_used, sweeps * s.read_plan().sweep_tiles());
  EXPECT_GT(s.stream_report()->io.bytes_read, s.memory_plan().sweep_bytes);
}

TEST_F(StreamedModel, ReadsFromMirrorsAndGoesOnWithoutThem) {
  std::string expected = resident_outcome(case_);
  test::TempDir mirror;
  std::filesystem::copy(dir_.path() / "model.safetensors", mirror.path() / "model.safetensors");
  ModelOptions options = case_.options();
  options.mirrors = {mirror.path()};
  options.place = parse_place_rules("mlp=disk");  // whatever memory this process has just freed
  for (const auto& failing : {mirror.path(), dir_.path()}) {
    std::filesystem::path file = failing / "model.safetensors";
    std::string bytes = test::read_file(file);
    LoadedModel& s = load(options);
    EXPECT_EQ(outcome(s), expected);
    std::filesystem::resize_file(file, 100000);
    for (int i = 0; i < (test::is_brief() ? 1 : 3); ++i) EXPECT_EQ(outcome(s), expected);
    ready_.reset();
    test::write_file(file, bytes);
  }
}

TEST_F(StreamedModel, FileThatShrinksEndsTheRunWithOneSentence) {
  LoadedModel& s = load(case_.options());
  std::filesystem::resize_file(dir_.path() / "model.safetensors", 100000);
  try {
    for (int i = 0; i < 3; ++i) outcome(s);
    FAIL() << "a file that shrank was read";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("changed"), std::string::npos) << e.what();
  }
}

// A byte of a file, in place; with the file's old mtime, as a copying tool may set it.
void write_over(const std::filesystem::path& file, uint64_t at, bool keep_time) {
  auto time = std::filesystem::last_write_time(file);
  std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
  f.seekp(static_cast<std::streamoff>(at));
  f.put('x');
  f.close();
  if (keep_time) std::filesystem::last_write_time(file, time);
}

TEST_F(StreamedModel, NoResultComesFromAFileThatIsWrittenTo) {
  const std::filesystem::path file = dir_.path() / "model.safetensors";
  for (std::string_view scheme : {"none", "fp8_per_channel"}) {
    for (io::ReaderKind reader :
         {io::ReaderKind::automatic, io::ReaderKind::pread, io::ReaderKind::mmap}) {
      case_.scheme = scheme;
      case_.reader = reader;
      LoadedModel& s = load(case_.options());
      Runner& runner = s.runner();
      Sequence sequence = runner.new_sequence();
      const std::vector<int32_t> ids = prompt_ids(s.planner());
      runner.logits(runner.prefill(sequence, ids, {}));
      write_over(file, std::filesystem::file_size(file) / 2, reader == io::ReaderKind::pread);
      try {
        runner.logits(runner.step(sequence, std::span(ids).first(1), kStreamedPrompt + 1));
        FAIL() << "a result of a file that was written to";
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::runtime);
        EXPECT_NE(std::string(e.what()).find("model.safetensors: has changed"), std::string::npos)
            << e.what();
      }
    }
  }
}

TEST_F(StreamedModel, AnotherNameOrNoneChangesNoBytes) {
  const std::filesystem::path file = dir_.path() / "model.safetensors";
  std::string expected = resident_outcome(case_);
  LoadedModel& s = load(case_.options());
  EXPECT_EQ(outcome(s), expected);
  std::filesystem::create_hard_link(file, dir_.path() / "link");
  EXPECT_EQ(outcome(s), expected);
  std::filesystem::rename(dir_.path() / "config.json", file);  // another file has the name
  std::filesystem::remove(dir_.path() / "link");
  EXPECT_EQ(outcome(s), expected);
}

TEST_F(StreamedModel, NanInAStreamedTensorIsRefused) {
  // The second is looked up: the prompt's first token is 7, whose row is 7 * 256 elements in.
  for (auto [name, at] : {std::pair{"model.layers.5.mlp.up_proj.weight", 10},
                          {"model.embed_tokens.weight", 7 * 256 * 2}}) {
    std::vector<test::TinyTensor> damaged = tensors_;
    for (test::TinyTensor& t : damaged) {
      if (t.name == name) t.bytes.replace(static_cast<size_t>(at), 2, "\xc0\x7f", 2);
    }
    test::write_checkpoint(dir_.path(), Json::parse(test::read_file(dir_.path() / "config.json")),
                           damaged);
    ModelOptions options = case_.options();
    options.place = parse_place_rules("mlp=disk");
    LoadedModel& s = load(options);
    try {
      outcome(s);
      FAIL() << "NaN was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::refused);
      EXPECT_NE(std::string(e.what()).find(name), std::string::npos) << e.what();
    }
  }
}

TEST_F(StreamedModel, QuantizationErrorIsEnforcedForWhatIsStreamed) {
  case_.scheme = "fp8_per_channel";
  ModelOptions options = case_.options();
  options.max_quant_error = 1e-6;
  EXPECT_THROW(load(options), Error);
  options.max_quant_error = 0.5;
  EXPECT_NO_THROW(load(options));
  for (const TensorReport& t : ready_->model.report().tensors) {
    EXPECT_EQ(t.relative_rms_error() > 0, t.quantized) << t.name();
  }
}

TEST_F(StreamedModel, TooSmallABudgetIsRefusedWithOneThatWorks) {
  ModelOptions options = case_.options();
  options.memory = "1MiB";
  Planner s(options);
  try {
    s.place(shape_of(s));
    FAIL() << "1 MiB was enough";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::no_fit);
    EXPECT_NE(std::string(e.what()).find("the smallest budget that works is --memory"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace sluice
