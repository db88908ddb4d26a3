// Loads: whatever the reader, the ring and the threads, what they report, and what they leave
// behind.
#include "src/load/streamer.h"

#include <gtest/gtest.h>

#include <mutex>

#include "src/base/error.h"
#include "src/device/host_device.h"
#include "src/plan/compile.h"
#include "tests/load/expected.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

class StreamerTest : public testing::Test {
 protected:
  void write(const Json& config, size_t shards, const char* what) {
    test::Random random(what);
    tensors_ = test::tiny_tensors(config, random);
    test::write_checkpoint(dir_.path(), config, tensors_, shards);
    model_ = build_model(dir_.path(), Rank{});
    index_.emplace(io::open_checkpoint(dir_.path()));
  }
  std::vector<Resident> load(const QuantizeRequest& quantize, const Staging& staging,
                             LoadOptions options) {
    plan_ = compile(model_, *index_, quantize, staging);
    auto device = make_host_device();
    auto encoder = make_cpu_encoder(Isa::automatic);
    LoadProgress progress;
    Streamer streamer(plan_, *index_, *device, *encoder, ledger_, measured_, options);
    auto residents = streamer.load_all(report_, progress, stop_.get_token());
    EXPECT_EQ(progress.bytes_done, plan_.read_bytes());
    EXPECT_EQ(progress.units_done, plan_.units.size());
    return residents;
  }
  test::TempDir dir_;
  std::vector<test::TinyTensor> tensors_;
  Model model_;
  std::optional<io::CheckpointIndex> index_;
  ReadPlan plan_;
  Ledger ledger_;
  Measured measured_;
  LoadReport report_;
  std::stop_source stop_;
};

Json larger_config() {
  Json config = test::tiny_config();
  config["hidden_size"] = 150;
  config["intermediate_size"] = 333;
  config["vocab_size"] = 259;
  config["attention_bias"] = true;
  return config;
}

TEST_F(StreamerTest, EveryReaderRingAndThreadCountLoadsTheCheckpointsRows) {
  Json config = larger_config();
  config["num_hidden_layers"] = 1;
  write(config, 3, "readers, rings and threads");
  int64_t number = 0;
  for (const QuantScheme& scheme : quant_schemes()) {
    QuantizeRequest quantize{
        scheme, {ParamRole::linear, ParamRole::embedding, ParamRole::head, ParamRole::norm}, false};
    const auto expected = test::expected_params(config, tensors_, Rank{}, quantize);
    for (io::ReaderKind reader :
         {io::ReaderKind::automatic, io::ReaderKind::pread, io::ReaderKind::mmap}) {
      for (uint64_t slot : {uint64_t{32} << 10, uint64_t{1} << 20}) {
        for (int threads : {1, 3}) {
          // A scheme meets three or four of the twelve, and each of these a third of the schemes.
          if (test::is_brief() && number++ % 13 % 4 != 0) continue;
          SCOPED_TRACE(testing::Message()
                       << scheme.name << " slot " << slot << " threads " << threads);
          auto residents = load(quantize, {slot, 4 * slot}, {reader, threads});
          ASSERT_EQ(plan_.params.size(), expected.size());
          for (size_t i = 0; i < expected.size(); ++i) {
            ASSERT_EQ(plan_.params[i].param->path, expected[i].path);
            EXPECT_TRUE(test::holds(plan_.params[i].param->value, 0, expected[i]));
          }
        }
      }
    }
  }
}

TEST_F(StreamerTest, ReportsQuantizationErrorOfEachTensor) {
  write(larger_config(), 1, "errors");
  auto residents = load({*find_quant_scheme("fp8_per_channel"), {ParamRole::linear}, false},
                        {1 << 16, 1 << 18}, {});
  ASSERT_EQ(report_.tensors.size(), tensors_.size());
  for (const TensorReport& t : report_.tensors) {
    bool linear = t.name().find("_proj.weight") != std::string::npos;
    EXPECT_EQ(t.quantized, linear) << t.name();
    if (linear) {
      // E4M3 has 3 bits of mantissa: the error is at most half a unit, 1/16 relative, and on
      // average some 2.6 %.
      EXPECT_GT(t.relative_rms_error(), 0.015) << t.name();
      EXPECT_LT(t.relative_rms_error(), 0.04) << t.name();
    } else {
      EXPECT_EQ(t.stats.error_squares, 0) << t.name();
    }
  }
}

TEST_F(StreamerTest, EndOfResidentReturnsParametersToMetaAndMemoryToTheLedger) {
  write(test::tiny_config(), 1, "meta");
  {
    auto residents = load({*find_quant_scheme("none"), {}, false}, {1 << 16, 1 << 18}, {});
    ASSERT_FALSE(plan_.params.empty());
    for (const ParamPlan& p : plan_.params) EXPECT_FALSE(p.param->value.is_meta());
    EXPECT_GE(ledger_.used(Place::host), plan_.storage_bytes());
  }
  for (const ParamPlan& p : plan_.params) EXPECT_TRUE(p.param->value.is_meta());
  EXPECT_EQ(ledger_.used(Place::host), 0u);
}

TEST_F(StreamerTest, ChangedFileAndStopLeaveNothingBehind) {
  write(larger_config(), 1, "faults");
  stop_.request_stop();
  EXPECT_THROW(load({*find_quant_scheme("none"), {}, false}, {1 << 16, 1 << 18}, {}), Error);
  EXPECT_EQ(ledger_.used(Place::host), 0u);
  stop_ = std::stop_source();
  std::filesystem::resize_file(dir_ / "model.safetensors",
                               std::filesystem::file_size(dir_ / "model.safetensors") / 2);
  for (io::ReaderKind reader :
       {io::ReaderKind::automatic, io::ReaderKind::pread, io::ReaderKind::mmap}) {
    EXPECT_THROW(load({*find_quant_scheme("none"), {}, false}, {1 << 16, 1 << 18}, {reader, 2}),
                 Error);
    EXPECT_EQ(ledger_.used(Place::host), 0u);
  }
}

// Writes to a file in the middle of a load.
class WritingEncoder final : public Encoder {
 public:
  explicit WritingEncoder(std::filesystem::path file) : file_(std::move(file)) {}
  EncodeStats encode(const EncodeArgs& args) const override {
    std::call_once(once_, [this] {
      std::filesystem::last_write_time(file_, std::filesystem::file_time_type::clock::now());
    });
    return encoder_->encode(args);
  }
  float absolute_max(const std::byte* source, DType stored, int64_t source_stride, int64_t rows,
                     int64_t cols) const override {
    return encoder_->absolute_max(source, stored, source_stride, rows, cols);
  }
  void order_columns(const Weight& to, int64_t first_row, int64_t rows,
                     const int32_t* order) const override {
    encoder_->order_columns(to, first_row, rows, order);
  }

 private:
  std::filesystem::path file_;
  std::unique_ptr<Encoder> encoder_ = make_cpu_encoder(Isa::automatic);
  mutable std::once_flag once_;
};

TEST_F(StreamerTest, AFileThatIsWrittenToWhileItIsLoadedIsRefused) {
  write(larger_config(), 2, "written to");
  plan_ = compile(model_, *index_, {*find_quant_scheme("none"), {}, false}, {1 << 16, 1 << 18});
  auto device = make_host_device();
  WritingEncoder encoder(dir_ / "model-00001-of-00002.safetensors");
  LoadProgress progress;
  Streamer streamer(plan_, *index_, *device, encoder, ledger_, measured_, {});
  try {
    streamer.load_all(report_, progress, {});
    FAIL() << "it was loaded";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::runtime);
    EXPECT_NE(std::string(e.what()).find("model-00001-of-00002.safetensors: has changed"),
              std::string::npos)
        << e.what();
  }
  EXPECT_EQ(ledger_.used(Place::host), 0u);
}

// Either copy of a file may be cut short, or gone, after its headers were read.
TEST_F(StreamerTest, AFileThatCannotBeReadIsReadFromItsMirror) {
  const Json config = larger_config();
  write(config, 2, "mirrors");
  test::TempDir mirror;
  const char* shard = "model-00002-of-00002.safetensors";
  for (const char* name : {"model-00001-of-00002.safetensors", shard})
    std::filesystem::copy(dir_ / name, mirror.path() / name);
  const QuantizeRequest quantize{*find_quant_scheme("fp8_per_tensor"), {ParamRole::linear}, false};
  const auto expected = test::expected_params(config, tensors_, Rank{}, quantize);
  const std::filesystem::path directories[] = {mirror.path()};
  for (const auto& directory : {dir_.path(), mirror.path()}) {
    for (bool is_gone : {false, true}) {
      SCOPED_TRACE(testing::Message() << directory << (is_gone ? " gone" : " cut short"));
      const std::string bytes = test::read_file(directory / shard);
      index_.emplace(io::open_checkpoint(dir_.path(), directories));
      if (is_gone) std::filesystem::remove(directory / shard);
      if (!is_gone) std::filesystem::resize_file(directory / shard, bytes.size() / 3);
      auto residents = load(quantize, {1 << 16, 1 << 18}, {io::ReaderKind::automatic, 2});
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(test::holds(plan_.params[i].param->value, 0, expected[i]));
      test::write_file(directory / shard, bytes);
    }
  }
}

// Other elements of the same tensors.
std::vector<test::TinyTensor> in_float32(std::vector<test::TinyTensor> tensors,
                                         test::Random& random) {
  for (test::TinyTensor& t : tensors) {
    t.dtype = dtype_name(DType::f32);
    t.bytes = test::random_elements(random, t.shape, DType::f32);
  }
  return tensors;
}

// Weights take the place of others in the memory where those were.
TEST_F(StreamerTest, StorageIsRefilledFromAnotherCheckpoint) {
  const Json config = larger_config();
  write(config, 2, "first");
  test::Random random("second");
  std::vector<test::TinyTensor> others = test::tiny_tensors(config, random);
  test::TempDir other;
  test::write_checkpoint(other.path(), config, others, 1);
  for (std::string_view scheme : {"none", "fp8_per_tensor", "fp8_per_block"}) {
    SCOPED_TRACE(scheme);
    const QuantizeRequest quantize{
        *find_quant_scheme(scheme), {ParamRole::linear, ParamRole::head}, false};
    const Staging staging{1 << 15, 1 << 17};
    auto residents = load(quantize, staging, {io::ReaderKind::automatic, 2});
    std::vector<Weight> before;
    for (const ParamPlan& p : plan_.params) before.push_back(p.param->value);
    const uint64_t used = ledger_.used(Place::host);
    auto device = make_host_device();
    auto encoder = make_cpu_encoder(Isa::automatic);
    auto refill = [&](const std::filesystem::path& from, bool cut_short) {
      const io::CheckpointIndex index = io::open_checkpoint(from);
      const ReadPlan plan = compile(model_, index, quantize, staging);
      const std::filesystem::path file = from / "model.safetensors";
      if (cut_short) std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
      LoadProgress progress;
      Streamer streamer(plan, index, *device, *encoder, ledger_, measured_, {});
      streamer.refill(residents, report_, progress, {});
    };
    auto expect_contents = [&](const std::vector<test::TinyTensor>& tensors) {
      const auto expected = test::expected_params(config, tensors, Rank{}, quantize);
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(test::holds(plan_.params[i].param->value, 0, expected[i]));
        EXPECT_EQ(plan_.params[i].param->value.data, before[i].data);
      }
      EXPECT_EQ(ledger_.used(Place::host), used);
    };
    auto expect_empty = [&] {
      for (const ParamPlan& p : plan_.params) EXPECT_TRUE(p.param->value.is_meta());
      EXPECT_EQ(ledger_.used(Place::host), used);
    };
    refill(other.path(), false);
    expect_contents(others);
    EXPECT_THROW(refill(other.path(), true), Error);
    expect_empty();
    refill(dir_.path(), false);
    expect_contents(tensors_);
    test::write_checkpoint(other.path(), config, others, 1);

    // A checkpoint of another type: quantized weights keep their format, others change it.
    test::TempDir wide;
    test::write_checkpoint(wide.path(), config, in_float32(others, random), 1);
    try {
      refill(wide.path(), false);
      FAIL() << "it has no room for float32";
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::refused);
    }
    expect_empty();
  }
}

TEST_F(StreamerTest, NanAndInfinityAreCounted) {
  Json config = test::tiny_config();
  test::Random random("nan");
  tensors_ = test::tiny_tensors(config, random);
  for (test::TinyTensor& t : tensors_) {
    if (t.name == "model.layers.1.self_attn.k_proj.weight") {
      t.bytes.replace(10, 2, "\xc0\x7f", 2);  // NaN
      t.bytes.replace(20, 2, "\x80\x7f", 2);  // infinity
    }
  }
  test::write_checkpoint(dir_.path(), config, tensors_);
  model_ = build_model(dir_.path(), Rank{});
  index_.emplace(io::open_checkpoint(dir_.path()));
  for (const QuantScheme& scheme : quant_schemes()) {
    auto residents = load({scheme, {ParamRole::linear}, false}, {1 << 16, 1 << 18}, {});
    ASSERT_EQ(report_.tensors.size(), tensors_.size());
    for (const TensorReport& t : report_.tensors) {
      EXPECT_EQ(t.stats.not_finite, t.name() == "model.layers.1.self_attn.k_proj.weight" ? 2 : 0)
          << scheme.name;
    }
  }
}

}  // namespace
}  // namespace sluice
