// Loads: whatever the reader, the ring and the threads, parameters end with the same bits.
#include "src/load/streamer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "quant/encode.h"
#include "src/base/error.h"
#include "src/device/host_device.h"
#include "tests/support/checkpoint.h"

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
    Streamer streamer(plan_, *index_, *device, *encoder, ledger_, options);
    auto residents = streamer.load_all(report_, progress, stop_.get_token());
    EXPECT_EQ(progress.bytes_done, plan_.read_bytes());
    EXPECT_EQ(progress.units_done, plan_.units.size());
    return residents;
  }
  // Everything that the plan stored, by parameter.
  std::map<std::string, std::string> contents() {
    std::map<std::string, std::string> all;
    for (const ParamPlan& p : plan_.params) {
      const Weight& w = p.param->value;
      std::string& bytes = all[p.param->path];
      bytes.assign(reinterpret_cast<const char*>(w.data), p.bytes);
      if (w.scales != nullptr) bytes.append(reinterpret_cast<const char*>(w.scales), p.scale_bytes);
    }
    return all;
  }

  test::TempDir dir_;
  std::vector<test::TinyTensor> tensors_;
  Model model_;
  std::optional<io::CheckpointIndex> index_;
  ReadPlan plan_;
  Ledger ledger_;
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

TEST_F(StreamerTest, SameBitsForEveryReaderRingAndThreadCount) {
  write(larger_config(), 3, "same bits");
  for (const QuantScheme& scheme : quant_schemes()) {
    QuantizeRequest quantize{
        scheme, {ParamRole::linear, ParamRole::embedding, ParamRole::head, ParamRole::norm}, false};
    std::map<std::string, std::string> first;
    for (io::ReaderKind reader :
         {io::ReaderKind::automatic, io::ReaderKind::pread, io::ReaderKind::mmap}) {
      for (uint64_t slot : {uint64_t{32} << 10, uint64_t{1} << 20}) {
        for (int threads : {1, 3}) {
          auto residents = load(quantize, {slot, 4 * slot}, {reader, threads});
          if (first.empty()) first = contents();
          EXPECT_EQ(contents(), first) << scheme.name << " slot " << slot << " threads " << threads;
        }
      }
    }
  }
}

TEST_F(StreamerTest, UnquantizedElementsAreTheFiles) {
  write(larger_config(), 2, "exact");
  auto residents =
      load({*find_quant_scheme("none"), {ParamRole::linear}, false}, {1 << 16, 1 << 18}, {});
  std::map<std::string, const test::TinyTensor*> by_name;
  for (const test::TinyTensor& t : tensors_) by_name[t.name] = &t;
  for (const TensorPlan& t : plan_.tensors) {
    const Param& param = *plan_.params[t.param].param;
    const Piece& piece = param.pieces[t.piece];
    const std::string& bytes = by_name.at(t.stored->name)->bytes;
    for (int64_t i = 0; i < piece.rows * piece.cols; ++i) {
      uint16_t half;
      std::memcpy(&half, bytes.data() + 2 * i, 2);
      uint32_t bits = uint32_t{half} << 16;
      float expected;
      std::memcpy(&expected, &bits, 4);
      int64_t row = piece.vector ? 0 : piece.offset + i / piece.cols;
      int64_t col = piece.vector ? piece.offset + i : i % piece.cols;
      ASSERT_EQ(decode_element(param.value, row, col), expected)
          << t.stored->name << " element " << i;
    }
  }
}

TEST_F(StreamerTest, ReportsQuantizationErrorOfEachTensor) {
  write(larger_config(), 1, "errors");
  auto residents = load({*find_quant_scheme("fp8_per_channel"), {ParamRole::linear}, false},
                        {1 << 16, 1 << 18}, {});
  for (const TensorReport& t : report_.tensors) {
    bool linear = t.name.find("_proj.weight") != std::string::npos;
    EXPECT_EQ(t.quantized, linear) << t.name;
    if (linear) {
      // E4M3 has 3 bits of mantissa: the error is at most half a unit, 1/16 relative, and on
      // average some 2.6 %.
      EXPECT_GT(t.relative_rms_error(), 0.015) << t.name;
      EXPECT_LT(t.relative_rms_error(), 0.04) << t.name;
    } else {
      EXPECT_EQ(t.stats.error_squares, 0) << t.name;
    }
  }
}

TEST_F(StreamerTest, EndOfResidentReturnsParametersToMetaAndMemoryToTheLedger) {
  write(test::tiny_config(), 1, "meta");
  {
    auto residents = load({*find_quant_scheme("none"), {}, false}, {1 << 16, 1 << 18}, {});
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
    for (const TensorReport& t : report_.tensors) {
      EXPECT_EQ(t.stats.not_finite, t.name == "model.layers.1.self_attn.k_proj.weight" ? 2 : 0)
          << scheme.name;
    }
  }
}

}  // namespace
}  // namespace sluice
