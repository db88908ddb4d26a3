// Scales of the KV cache that a checkpoint brings along: under which names they are found, what is
// refused, and what they save.
#include "src/plan/kv_scales.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <optional>
#include <string>

#include "src/base/error.h"
#include "src/plan/memory_plan.h"
#include "tests/support/kv_scales.h"

namespace sluice {
namespace {

using test::attention_path;
using test::scale_tensor;
using test::TinyTensor;

constexpr int64_t kLayers = 3;

// A tiny model with these tensors beside its own.
struct ScaledCheckpoint {
  explicit ScaledCheckpoint(const std::vector<TinyTensor>& more, size_t shards = 1) {
    test::Random random("kv scales");
    std::vector<TinyTensor> tensors = test::tiny_tensors(test::tiny_config(), random);
    tensors.insert(tensors.begin() + 5, more.begin(), more.end());
    test::write_checkpoint(dir.path(), test::tiny_config(), tensors, shards);
    model = build_model(dir.path(), Rank{});
    index.emplace(io::open_checkpoint(dir.path()));
  }
  std::vector<KvScales> read() const { return read_kv_scales(*model.root, *index); }
  ReadPlan plan() { return compile(model, *index, request(), {1 << 16, 1 << 18}); }
  static QuantizeRequest request() {
    return {*find_quant_scheme("none"), {ParamRole::linear}, false};
  }

  test::TempDir dir;
  Model model;
  std::optional<io::CheckpointIndex> index;
};

std::vector<TinyTensor> all_scales() {
  std::vector<TinyTensor> scales;
  test::add_kv_scales(scales, kLayers);
  return scales;
}

std::string refusal(const std::vector<TinyTensor>& scales) {
  try {
    ScaledCheckpoint(scales).read();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::refused);
    return e.what();
  }
  return "accepted";
}

void expect_mentions(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
}

TEST(KvScales, AreFoundUnderTheNamesOfEveryTool) {
  struct Names {
    const char *key, *value;
  };
  for (auto [key, value] : {Names{"k_scale", "v_scale"},
                            {"attn.k_scale", "attn.v_scale"},
                            {"k_proj.k_scale", "v_proj.v_scale"},
                            {"k_proj.output_scale", "v_proj.output_scale"}}) {
    for (const char* dtype : {"F32", "BF16", "F16"}) {
      std::vector<TinyTensor> scales;
      for (int64_t l = kLayers - 1; l >= 0; --l) {  // values that all three types have
        auto n = static_cast<float>(l + 1);
        scales.push_back(scale_tensor(attention_path(l) + value, n / 64, dtype, {1}));
        scales.push_back(scale_tensor(attention_path(l) + key, n / 32, dtype));
      }
      std::vector<KvScales> have = ScaledCheckpoint(scales, 2).read();
      ASSERT_EQ(std::ssize(have), kLayers) << key;
      for (size_t l = 0; l < have.size(); ++l) {
        EXPECT_EQ(have[l].key, static_cast<float>(l + 1) / 32) << key << " " << dtype;
        EXPECT_EQ(have[l].value, static_cast<float>(l + 1) / 64) << value << " " << dtype;
      }
    }
  }
}

TEST(KvScales, OneForBothServesBoth) {
  std::vector<TinyTensor> scales;
  for (int64_t l = 0; l < kLayers; ++l)
    scales.push_back(scale_tensor(attention_path(l) + "kv_scale", test::key_scale(l)));
  std::vector<KvScales> have = ScaledCheckpoint(scales).read();
  ASSERT_EQ(std::ssize(have), kLayers);
  for (int64_t l = 0; l < kLayers; ++l) {
    EXPECT_EQ(have[static_cast<size_t>(l)].key, test::key_scale(l));
    EXPECT_EQ(have[static_cast<size_t>(l)].value, test::key_scale(l));
  }
}

TEST(KvScales, NoneAreUsedWhereALayerHasNone) {
  EXPECT_TRUE(ScaledCheckpoint({}).read().empty());
  std::vector<TinyTensor> two;
  test::add_kv_scales(two, 2);
  ScaledCheckpoint checkpoint(two);
  EXPECT_TRUE(checkpoint.read().empty());
  EXPECT_EQ(checkpoint.plan().ignored.size(), 4u);
}

TEST(KvScales, EveryFaultIsInOneMessage) {
  EXPECT_EQ(refusal(all_scales()), "accepted");
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (auto [bad, text] : {std::pair{0.0f, "is 0,"},
                           {-0.5f, "is -0.5,"},
                           {std::numeric_limits<float>::quiet_NaN(), "is nan,"},
                           {kInfinity, "is inf,"}}) {
    std::vector<TinyTensor> scales = all_scales();
    scales[3] = scale_tensor(attention_path(1) + "v_scale", bad);
    expect_mentions(refusal(scales), {"model.safetensors: model.layers.1.self_attn.v_scale", text,
                                      "finite and above 0", "--kv-cache-dtype"});
  }

  std::vector<TinyTensor> scales = all_scales();
  scales[0].shape = {1, 2};
  scales[0].bytes += scales[0].bytes;
  scales[1].dtype = "I32";
  scales.erase(scales.begin() + 2);
  scales.push_back(scale_tensor(attention_path(2) + "k_proj.k_scale", 1));
  expect_mentions(
      refusal(scales),
      {"layers.0.self_attn.k_scale has shape [1, 2], but must be one number",
       "layers.0.self_attn.v_scale has dtype I32",
       "layers.1.self_attn.v_scale is there without model.layers.1.self_attn.k_scale",
       "layers.2.self_attn.k_proj.k_scale is there beside model.layers.2.self_attn.k_scale"});
  std::erase_if(scales, [](const TinyTensor& t) { return t.name.ends_with("v_scale"); });
  expect_mentions(refusal(scales),
                  {"k_scale is there without", "v_scale, the scale of the values"});
}

TEST(KvScales, AreListedAsUsedOrIgnored) {
  ScaledCheckpoint checkpoint(all_scales());
  ReadPlan unused = checkpoint.plan();
  EXPECT_EQ(std::ssize(unused.ignored), 2 * kLayers);
  EXPECT_TRUE(unused.kv_scales.empty());
  checkpoint.model.root->use_kv_scales(checkpoint.read());
  ReadPlan used = checkpoint.plan();
  EXPECT_TRUE(used.ignored.empty());
  ASSERT_EQ(std::ssize(used.kv_scales), 2 * kLayers);
  EXPECT_EQ(used.kv_scales[0]->name, attention_path(0) + "k_scale");
  EXPECT_EQ(used.read_bytes(), unused.read_bytes());

  // Scales of a layer that the model does not have are refused.
  ScaledCheckpoint more({scale_tensor(attention_path(kLayers) + "k_scale", 1)});
  EXPECT_THROW(more.plan(), Error);
}

TEST(KvScales, BlocksHoldNone) {
  ScaledCheckpoint checkpoint(all_scales());
  CausalLM& root = *checkpoint.model.root;
  ThreadPool pool(1);
  std::unique_ptr<Backend> backend = make_cpu_backend(Isa::automatic, pool);
  RunShape shape{.backend = backend.get(),
                 .max_tokens = 1024,
                 .longest_prompt = 50,
                 .kv_dtype = DType::f8_e4m3};
  auto plan = [&] {
    ReadPlan laid_out = lay_out(checkpoint.model, *checkpoint.index, ScaledCheckpoint::request());
    return smallest_plan(root, laid_out, shape, 1 << 20);
  };
  // 2 KV heads x 16 tokens of 8 codes, each with a float32 scale or not; keys and values.
  MemoryPlan own = plan();
  EXPECT_EQ(kv_block_bytes(kv_layout(root, shape).caches[0][0]), 2 * 2 * 16 * (8 + 4));
  root.use_kv_scales(checkpoint.read());
  MemoryPlan layer = plan();
  EXPECT_EQ(kv_block_bytes(kv_layout(root, shape).caches[0][0]), 2 * 2 * 16 * 8);
  EXPECT_EQ(layer.kv_blocks, own.kv_blocks);
  EXPECT_EQ(layer.kv_cache * 3, own.kv_cache * 2);
  shape.kv_dtype = DType::bf16;
  EXPECT_EQ(kv_block_bytes(kv_layout(root, shape).caches[0][0]), 2 * 2 * 16 * 8 * 2);
}

TEST(KvScales, AreReadFromACopyWhereTheFileCannotBe) {
  ScaledCheckpoint checkpoint(all_scales());
  test::TempDir mirror;
  std::filesystem::copy(checkpoint.dir / "model.safetensors", mirror / "model.safetensors");
  std::vector<std::filesystem::path> mirrors{mirror.path()};
  io::CheckpointIndex both = io::open_checkpoint(checkpoint.dir.path(), mirrors);
  std::string bytes = test::read_file(checkpoint.dir / "model.safetensors");
  test::write_file(checkpoint.dir / "model.safetensors", bytes + "!");
  EXPECT_EQ(std::ssize(read_kv_scales(*checkpoint.model.root, both)), kLayers);
  try {
    checkpoint.read();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::runtime);
    expect_mentions(e.what(), {"has changed since its header was read"});
  }
}

}  // namespace
}  // namespace sluice
