// Goldens on the CPU: the runs of engine_test, and what is tested of the CPU alone.
#include <gtest/gtest.h>

#include <set>

#include "tests/engine/golden_runs.h"
#include "tests/support/sanitized.h"

namespace sluice {

const test::GoldenRuns& test::golden_runs() {
  static const std::vector<std::filesystem::path> bundled =
      is_brief() ? models_with_own_parts() : bundled_models();
  static const GoldenRuns runs{
      .how = {},
      .bundled = bundled,
      .bundled_paths = bundled,
      .bundled_streamed = is_brief() ? models_stored_otherwise() : bundled_models(),
      .shared = shared_models(),
      .float32_isas =
          is_brief() ? std::vector{Isa::automatic} : std::vector{Isa::reference, Isa::automatic},
      .bfloat16_isas = is_brief()
                           ? std::vector{Isa::automatic}
                           : std::vector{Isa::portable, Isa::avx2, Isa::avx512_bf16, Isa::amx},
      .most_tokens = 1000,
      .most_prompts = [](const std::filesystem::path&) -> size_t { return 1000; },
      .streamed_dtypes = is_brief() ? std::vector{DtypeChoice::bf16}
                                    : std::vector{DtypeChoice::bf16, DtypeChoice::f32},
      .streamed = {{"none", "1=disk"},
                   {"none", "*=disk"},
                   {"fp8_per_channel", "1=disk"},
                   {"fp8_per_channel", "*=disk"}},
      .starts = 2,
      .streams_the_longest = true};
  return runs;
}

namespace {

namespace fs = std::filesystem;
using test::How;
using test::Outcome;

constexpr const char* kOtherNumbers =
    "it takes the ways that SameBitsHoweverTheWorkIsDivided takes; the plain build compares the "
    "numbers";

class CpuGolden : public test::GoldenTest {};

TEST_P(CpuGolden, QuantizedWithinTheToleranceOfItsScheme) {
  if (test::is_brief()) GTEST_SKIP() << kOtherNumbers;
  for (const QuantScheme& scheme : element_schemes()) {
    for (DtypeChoice dtype : {DtypeChoice::f32, DtypeChoice::bf16}) {
      const auto ready = loaded(GetParam(), goldens_, {.dtype = dtype, .scheme = scheme.name});
      for (const test::Golden& golden : goldens_) {
        SCOPED_TRACE(testing::Message() << "prompt of " << golden.ids.size());
        file_.expect_scheme(test::run_prompt(ready->model, golden.ids, 0, 512), golden,
                            scheme.name);
      }
    }
  }
}

// Runs with other divisions of the work: each way of dividing is in one of the two.
void expect_same_bits(const fs::path& model, const test::Golden& golden, const How& standard) {
  auto run = [&](const How& how) { return run_model(model, golden.ids, 4, how); };
  Outcome first = run(standard);
  ASSERT_EQ(std::ssize(first.logits), std::ssize(golden.ids));
  ASSERT_EQ(first.greedy.size(), 4u);
  How one = standard, other = standard;
  one.threads = 3;
  one.block_size = 5;
  one.reader = io::ReaderKind::mmap;
  other.threads = 1;
  other.chunk = 7;
  other.reader = io::ReaderKind::pread;
  for (const How& how : {one, other}) {
    Outcome again = run(how);
    EXPECT_EQ(again.logits, first.logits);
    EXPECT_EQ(again.greedy, first.greedy);
  }
}

TEST_P(CpuGolden, SameBitsHoweverTheWorkIsDivided) {
  for (DtypeChoice dtype : {DtypeChoice::bf16, DtypeChoice::f32}) {
    if (test::is_brief() && dtype == DtypeChoice::f32) continue;
    for (const char* scheme : {"none", "fp8_per_channel", "fp8_per_block", "fp8_dynamic",
                               "fp8_dynamic_per_block", "int8"}) {
      SCOPED_TRACE(scheme);
      expect_same_bits(GetParam(), goldens_.back(), {.dtype = dtype, .scheme = scheme});
    }
  }
  for (DType kv : {DType::f8_e4m3, DType::f8_e5m2}) {
    SCOPED_TRACE(dtype_name(kv));
    expect_same_bits(GetParam(), goldens_.back(), {.dtype = DtypeChoice::bf16, .kv_dtype = kv});
  }
}

// Under sanitizers, of each way to store and to compute one.
INSTANTIATE_TEST_SUITE_P(Bundled, CpuGolden,
                         testing::ValuesIn(test::golden_runs().bundled_streamed),
                         test::golden_name);
INSTANTIATE_TEST_SUITE_P(Shared, CpuGolden, testing::ValuesIn(test::golden_runs().shared),
                         test::golden_name);

// A model that is gone takes its tests with it, unseen.
TEST(GoldenModels, TheBundledOnesAreHere) {
  std::set<std::string> names;
  for (const fs::path& model : test::bundled_models()) {
    names.insert(model.filename().string());
    EXPECT_TRUE(test::is_supported(model)) << model;
  }
  for (const char* name : {"llama_rope_dynamic",
                           "llama_tied",
                           "mistral_sliding",
                           "gguf_bf16_tied",
                           "gpt2_noprefix",
                           "gpt_neox",
                           "phi3_longrope",
                           "exaone4",
                           "falcon_grouped",
                           "glm4",
                           "gptj",
                           "phi",
                           "smollm3",
                           "apertus",
                           "bloom",
                           "cohere2",
                           "olmo3",
                           "gemma3",
                           "gemma4_text_dense",
                           "gemma4_e",
                           "qwen3_5",
                           "falcon_h1",
                           "lfm2",
                           "mamba2",
                           "mamba",
                           "falcon_mamba",
                           "jamba_dense",
                           "nemotron_h",
                           "nemotron_h_latent",
                           "cohere",
                           "falcon_alibi",
                           "phi_tied",
                           "stablelm",
                           "mixtral",
                           "glm4_moe",
                           "granitemoe",
                           "qwen3_5_moe",
                           "gpt_oss",
                           "kimi_k2",
                           "mistral4_text",
                           "deepseek_v32",
                           "deepseek_v4",
                           "cohere_compass",
                           "step3p7",
                           "glm_moe_dsa",
                           "codegen",
                           "cwm",
                           "exaone",
                           "flex_olmo",
                           "gpt_bigcode",
                           "granitemoeshared",
                           "helium",
                           "jais2",
                           "mpt",
                           "nanochat",
                           "nemotron",
                           "olmo",
                           "vaultgemma",
                           "youtu",
                           "mlx_floats",
                           "mlx_floats_gemma4",
                           "afmoe",
                           "solar_open",
                           "dbrx",
                           "olmoe",
                           "aria",
                           "bitnet",
                           "gemma4_unified",
                           "kolibri1",
                           "laguna",
                           "gemma3n",
                           "xglm",
                           "ctrl",
                           "apertus1p5",
                           "mllama",
                           "lfm3",
                           "mimo_v2_flash",
                           "olmo_hybrid",
                           "kimi_linear",
                           "bailing_hybrid",
                           "gguf_gpt_oss",
                           "gguf_ministral3",
                           "gguf_lfm2_moe",
                           "gguf_qwen3_5",
                           "gguf_qwen3_next",
                           "gguf_falcon_mamba",
                           "gguf_mamba2",
                           "gguf_afmoe",
                           "gguf_gpt_bigcode",
                           "baichuan",
                           "baichuan_alibi",
                           "deci",
                           "deepseek",
                           "maincoder",
                           "plm",
                           "internlm",
                           "orion",
                           "qwen1",
                           "gguf_bitnet",
                           "gguf_deepseek4",
                           "gguf_dots3_note",
                           "gguf_gemma3n",
                           "gguf_hunyuan_vl",
                           "gguf_mellum",
                           "gguf_nemotron_h_moe",
                           "gguf_paddleocr",
                           "gguf_pangu",
                           "gguf_qwen2vl",
                           "gguf_qwen35moe",
                           "gguf_qwen3vl",
                           "gguf_qwen3vlmoe",
                           "gguf_xverse",
                           "flint",
                           "biogpt",
                           "openai_gpt",
                           "axk1",
                           "axk2",
                           "dots3_note",
                           "lara_mini",
                           "longcat_flash",
                           "minimax",
                           "bailing_moe",
                           "bailing_moe_v2",
                           "chatglm",
                           "cohere2_moe",
                           "exaone_moe",
                           "gpt_neo",
                           "granite_swa",
                           "granitemoe_swa",
                           "hy_v3",
                           "hyperclovax",
                           "internlm2",
                           "mellum",
                           "minicpm",
                           "minicpm3",
                           "persimmon",
                           "sarvam_moe",
                           "phimoe",
                           "llama4_text",
                           "gemma4_text_moe"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(GoldenModels, SharedOnesRunToo) {
  if (test::shared_models().empty())
    GTEST_SKIP() << "shared fixtures (SLUICE_ORACLE) run with tools/test --all";
}

}  // namespace
}  // namespace sluice
