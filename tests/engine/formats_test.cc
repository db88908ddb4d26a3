// Checkpoints that are quantized already, against what transformers makes of their dequantized
// weights: these exactly, logits within the manifest's tolerance, and greedy tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string_view>

#include "quant/encode.h"
#include "quant/groups.h"
#include "tests/engine/in_memory.h"
#include "tests/engine/placed.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using test::Golden;
using test::Outcome;

// Formats of safetensors, and GGUF whose blocks are kept as they are stored: quant/blocks.h.
constexpr std::string_view kBegins[] = {"autoround_", "awq_",  "bnb_", "ct_",
                                        "fp8_",       "gptq_", "mlx_", "modelopt_"};
constexpr std::string_view kFormats[] = {
    "gguf_align64_order", "gguf_gemma3",     "gguf_iq1_m",  "gguf_iq1_s",         "gguf_iq2_s",
    "gguf_iq2_xs",        "gguf_iq2_xxs",    "gguf_iq3_s",  "gguf_iq3_xxs",       "gguf_iq4_nl",
    "gguf_iq4_xs",        "gguf_mixtral",    "gguf_mxfp4",  "gguf_nvfp4",         "gguf_q1_0",
    "gguf_q2_k",          "gguf_q3_k",       "gguf_q4_0",   "gguf_q4_1",          "gguf_q4_k",
    "gguf_q5_1",          "gguf_q6_k",       "gguf_q8_0",   "gguf_qwen2",         "gguf_qwen3",
    "gguf_qwen3moe",      "gguf_rope_freqs", "gguf_split",  "gguf_tok_llama_bpe", "gguf_tok_spm",
    "gguf_tq1_0",         "gguf_tq2_0",      "gguf_ud_iq2", "gguf_ud_mixed",      "mxfp4_gpt_oss"};

bool is_tested(const fs::path& format) {
  const std::string name = format.filename().string();
  const auto begins = [&](std::string_view with) { return name.starts_with(with); };
  return std::ranges::any_of(kBegins, begins) ||
         std::ranges::find(kFormats, name) != std::end(kFormats);
}

std::vector<fs::path> bundled_formats() {
  return test::models_in(test::source_dir() / "tests/data/formats");
}
std::vector<fs::path> shared_formats() {
  std::vector<fs::path> found;
  if (test::oracle_dir().empty() || (test::is_brief())) return found;
  for (const fs::path& format : test::models_in(test::oracle_dir() / "formats"))
    if (is_tested(format)) found.push_back(format);
  return found;
}

class Formats : public testing::TestWithParam<fs::path> {
 protected:
  Formats() {
    for (size_t i = 0; i < file_.prompts(); ++i) goldens_.push_back(file_.golden(i));
  }
  void SetUp() override { ASSERT_FALSE(goldens_.empty()); }

  ModelOptions options_for(DtypeChoice dtype, Isa isa, const char* scheme) const {
    ModelOptions options;
    options.model = test::model_in(GetParam());
    options.dtype = dtype;
    options.isa = isa;
    options.threads = 2;
    options.quantize.scheme = *find_quant_scheme(scheme);
    return options;
  }
  std::unique_ptr<test::Ready> loaded(DtypeChoice dtype, Isa isa,
                                      const char* scheme = "none") const {
    return load(options_for(dtype, isa, scheme));
  }
  std::unique_ptr<test::Ready> load(const ModelOptions& options) const {
    int64_t prompt = 0, tokens = 0;
    for (const Golden& g : goldens_) {
      prompt = std::max(prompt, std::ssize(g.ids));
      tokens = std::max(tokens, std::ssize(g.ids) + std::ssize(g.greedy));
    }
    return std::make_unique<test::Ready>(
        options, [&](const Planner& planner) { return planner.run_shape(tokens, prompt, prompt); });
  }

  test::GoldenFile file_{GetParam()};
  std::vector<Golden> goldens_;
};

// The golden's name of a piece: of a stack of experts it has the whole, or each by itself.
std::string golden_name_of(const Piece& piece, const test::SafetensorsFile& golden) {
  std::string name = "dequant." + piece.source;
  const std::string experts = "experts.";
  const size_t at = name.find(experts);
  if (piece.view.index && at != std::string::npos && !golden.has(name))
    name.insert(at + experts.size(), std::to_string(*piece.view.index) + ".");
  return name;
}

bool has_recurrence(const Checkpoint& checkpoint) {
  return std::holds_alternative<GatedDeltaNetSpec>(checkpoint.spec().layer(0).mixers.front().mixer);
}

// Returns the stored row for a row of the hub's checkpoint: GGUF's Llama stores the two of a rotary
// pair side by side.
int64_t stored_row(const Checkpoint& checkpoint, const Piece& piece, int64_t row) {
  const bool rotated =
      piece.source.ends_with("q_proj.weight") || piece.source.ends_with("k_proj.weight");
  if (!rotated || has_recurrence(checkpoint)) return row;
  const AttentionSpec& attention = checkpoint.spec().layer(0).mixers.front().attention();
  if (attention.rope != RopePairing::neighbours) return row;
  const int64_t half = attention.head_dim / 2, at = row % attention.head_dim;
  return row - at + at % half * 2 + at / half;
}

// The element of a golden that stands at a column of a piece's row. Whole stacks are as gpt-oss's
// parameters are, [experts, inputs, outputs], and not as it is stored.
float expected_at(const std::vector<float>& golden, const std::vector<int64_t>& shape,
                  const Piece& piece, int64_t row, int64_t col) {
  const int64_t output = piece.stored_output(row), inputs = piece.cols;
  const int64_t at = shape.size() == 3 ? (*piece.view.index * inputs + col) * shape.back() + output
                                       : output * inputs + col;
  return golden.at(static_cast<size_t>(at));
}

TEST_P(Formats, WeightsAreTheGoldensExactly) {
  const test::SafetensorsFile golden(GetParam() / "golden.safetensors");
  const auto ready = loaded(DtypeChoice::automatic, Isa::automatic);
  int compared = 0;
  for (const ParamPlan& p : ready->model.read_plan().params) {
    for (const Piece& piece : p.param->pieces) {
      const std::string name = golden_name_of(piece, golden);
      if (!golden.has(name) || piece.vector) continue;
      const auto expected = golden.values<float>(name);
      const std::vector<int64_t> shape = golden.shape(name);
      std::vector<float> row(static_cast<size_t>(piece.cols));
      for (int64_t r = 0; r < piece.rows; ++r) {
        decode_row(p.param->value, piece.offset + stored_row(ready->planner.checkpoint(), piece, r),
                   row.data());
        for (int64_t c = 0; c < piece.cols; ++c)
          ASSERT_EQ(row[static_cast<size_t>(c)], expected_at(expected, shape, piece, r, c))
              << name << ", row " << r << ", column " << c;
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, 0);
}

TEST_P(Formats, Float32LogitsAndGreedyTokens) {
  for (Isa isa : {Isa::reference, Isa::portable, Isa::automatic}) {
    const auto ready = loaded(DtypeChoice::f32, isa);
    for (const Golden& golden : goldens_) {
      SCOPED_TRACE(testing::Message() << "prompt of " << golden.ids.size());
      Outcome actual = test::run_prompt(ready->model, golden.ids, std::ssize(golden.greedy), 512);
      EXPECT_EQ(actual.greedy, golden.greedy);
      file_.expect_float32(actual, golden);
    }
  }
}

// With experts the longest prompt alone is judged: in a short one a single position where others
// are chosen is much of the mean.
TEST_P(Formats, Bfloat16WithinItsTolerance) {
  for (Isa isa : {Isa::portable, Isa::avx2, Isa::avx512_bf16, Isa::amx}) {
    if (!isa_supported(isa)) continue;
    const auto ready = loaded(DtypeChoice::bf16, isa);
    const bool longest = test::has_experts(ready->planner.checkpoint().spec().layer(0));
    for (const Golden& golden : std::span(goldens_).subspan(longest ? goldens_.size() - 1 : 0))
      file_.expect_bfloat16(test::run_prompt(ready->model, golden.ids, 0, 512), golden);
  }
}

std::span<const std::byte> plane_of(const ParamPlan& param, Plane plane) {
  const Weight& w = param.param->value;
  if (w.plane(plane) == nullptr) return {};
  return {w.plane(plane), plane_bytes(w.format, plane, w.rows, w.cols)};
}

TEST_P(Formats, ManySmallReadsGiveTheSameWeights) {
  const test::InMemory whole(GetParam(), {}, {uint64_t{1} << 20, uint64_t{4} << 20});
  const test::InMemory small(GetParam(), {}, {uint64_t{12} << 10, uint64_t{48} << 10});
  ASSERT_EQ(small.plan.params.size(), whole.plan.params.size());
  for (size_t i = 0; i < whole.plan.params.size(); ++i)
    for (Plane plane : kPlanes)
      EXPECT_TRUE(std::ranges::equal(plane_of(small.plan.params[i], plane),
                                     plane_of(whole.plan.params[i], plane)))
          << whole.plan.params[i].param->path << ", plane " << static_cast<int>(plane);
}

// A scheme is for what is not quantized; chunks change no bit.
TEST_P(Formats, SchemesAndChunksChangeNothing) {
  const auto ready = loaded(DtypeChoice::bf16, Isa::automatic);
  const auto again = loaded(DtypeChoice::bf16, Isa::automatic, "fp8_per_channel");
  const auto &first = ready->model.read_plan().params, &second = again->model.read_plan().params;
  int quantized = 0;
  for (size_t i = 0; i < first.size(); ++i) {
    if (is_float_weight(first[i].format.dtype)) continue;
    EXPECT_EQ(second[i].format.dtype, first[i].format.dtype) << first[i].param->path;
    ++quantized;
  }
  EXPECT_GT(quantized, 0);
  const Golden& golden = goldens_.back();
  const Outcome whole = test::run_prompt(ready->model, golden.ids, 4, 512);
  const Outcome parts = test::run_prompt(ready->model, golden.ids, 4, 3);
  EXPECT_EQ(whole.logits, parts.logits);
  EXPECT_EQ(whole.greedy, parts.greedy);
}

// Layers of integer codes round their inputs to 8 bits: of the logits that is some hundredths, but
// for recurrences, which carry it on.
TEST_P(Formats, InputsOf8BitsStayNear) {
  const Golden& golden = goldens_.back();
  const Outcome whole =
      test::run_prompt(loaded(DtypeChoice::f32, Isa::automatic)->model, golden.ids, 0, 512);
  const ModelOptions options = options_for(DtypeChoice::f32, Isa::automatic, "q8_activations");
  std::unique_ptr<test::Ready> ready;
  try {
    ready = load(options);
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("groups of integers"), std::string::npos) << e.what();
    return;
  }
  const auto rounds = [](const ParamPlan& p) { return p.format.quantized_input; };
  const auto has_integers = [](const ParamPlan& p) {
    return p.param->role == ParamRole::linear && is_grouped(p.format) &&
           has_integer_codes(p.format);
  };
  for (const ParamPlan& p : ready->model.read_plan().params)
    EXPECT_EQ(rounds(p), has_integers(p)) << p.param->path;
  const Outcome near = test::run_prompt(ready->model, golden.ids, 0, 512);
  EXPECT_EQ(test::run_prompt(ready->model, golden.ids, 0, 3).logits, near.logits);
  EXPECT_NE(near.logits, whole.logits);
  double difference = 0, squares = 0;
  for (size_t i = 0; i < whole.logits.size(); ++i) {
    for (size_t id = 0; id < whole.logits[i].size(); ++id) {
      difference += std::pow(near.logits[i][id] - whole.logits[i][id], 2);
      squares += std::pow(whole.logits[i][id], 2);
    }
  }
  EXPECT_LT(difference, (has_recurrence(ready->planner.checkpoint()) ? 0.1 : 0.01) * squares);
}

// Matrices on disk, GPTQ's from the spill cache.
TEST_P(Formats, StreamedWeightsGiveTheSameBits) {
  const Golden& golden = goldens_.back();
  const Outcome resident =
      test::run_prompt(loaded(DtypeChoice::f32, Isa::automatic)->model, golden.ids, 4, 512);
  const test::TempDir spill;
  for (int run = 0; run < 2; ++run) {  // one writes the copies, one finds them
    ModelOptions options = options_for(DtypeChoice::f32, Isa::automatic, "none");
    options.spill.directories = {spill.path()};
    options.place = parse_place_rules("layers=disk");
    const auto ready = load(options);
    EXPECT_TRUE(ready->model.memory_plan().streams());
    for (const ParamPlan& p : ready->model.read_plan().params) {
      const bool named = p.param->path.find("layers") != std::string::npos;
      EXPECT_TRUE(p.streamed() || !named || p.param->pieces.front().vector) << p.param->path;
    }
    const Outcome streamed = test::run_prompt(ready->model, golden.ids, 4, 512);
    EXPECT_EQ(streamed.logits, resident.logits);
    EXPECT_EQ(streamed.greedy, resident.greedy);
  }
}

// A symmetric one, whose zeros are stored as gptq_v2 has them under the name of gptq.
TEST(FormatModels, ZerosCountWhereTheirNameIsAnothers) {
  const fs::path known = test::source_dir() / "tests/data/formats/gptq_int3";
  const test::TempDir dir;
  const std::string less_one = "\xDB\xB6\x6D", itself = "\x24\x49\x92";  // of 8 zeros of 3 bits
  for (const fs::directory_entry& entry : fs::directory_iterator(known)) {
    std::string bytes = test::read_file(entry.path());
    // Nothing else in these files is so regular.
    const std::string run = less_one + less_one + less_one;
    for (size_t at = 0; (at = bytes.find(run, at)) != std::string::npos;) {
      for (; bytes.compare(at, 3, less_one) == 0; at += 3) bytes.replace(at, 3, itself);
    }
    test::write_file(dir / entry.path().filename().string(), bytes);
  }
  const auto logits = [](const fs::path& model) {
    ModelOptions options;
    options.model = model;
    options.dtype = DtypeChoice::f32;
    options.threads = 2;
    Planner planner(options);
    LoadedModel loaded(planner, planner.place(planner.run_shape(8, 4, 4)));
    return test::run_prompt(loaded, {3, 1, 4, 1}, 4, 512).logits;
  };
  ASSERT_NE(test::read_file(dir / "model-00001-of-00002.safetensors"),
            test::read_file(known / "model-00001-of-00002.safetensors"));
  EXPECT_EQ(logits(dir.path()), logits(known));
}

INSTANTIATE_TEST_SUITE_P(Bundled, Formats, testing::ValuesIn(bundled_formats()), test::golden_name);
INSTANTIATE_TEST_SUITE_P(Shared, Formats, testing::ValuesIn(shared_formats()), test::golden_name);

TEST(FormatModels, TheBundledOnesAreHere) { EXPECT_GE(bundled_formats().size(), 2u); }
TEST(FormatModels, SharedOnesRunToo) {
  if (shared_formats().empty())
    GTEST_SKIP() << "no shared fixtures here (SLUICE_ORACLE), or sanitized without --all";
}

}  // namespace
}  // namespace sluice
