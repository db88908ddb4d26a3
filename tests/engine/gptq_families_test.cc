// GPTQ's tensors of families whose checkpoints have several matrices in one, each after another or
// head by head: the same logits as of the weights that the codes mean, resident and from disk.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/engine/how.h"
#include "tests/quant/grouped_weights.h"
#include "tests/support/checkpoint.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using test::TinyTensor;

struct GptqCase {
  const char* name;
  Json config;
  int bits = 4;
  int64_t group = 32;  // -1: all inputs
  bool act_order = false;
  std::string layers = "layers";
};

Json config_with(const char* architecture, const Json& more) {
  Json config{{"architectures", {architecture}},
              {"vocab_size", 64},
              {"hidden_size", 64},
              {"intermediate_size", 96},
              {"num_hidden_layers", 1},
              {"num_attention_heads", 4},
              {"max_position_embeddings", 64},
              {"tie_word_embeddings", false}};
  config.update(more);
  return config;
}

std::vector<GptqCase> gptq_cases() {
  const Json delta{
      {"num_hidden_layers", 2},    {"layer_types", {"linear_attention", "full_attention"}},
      {"num_key_value_heads", 2},  {"head_dim", 16},
      {"linear_num_key_heads", 2}, {"linear_num_value_heads", 4},
      {"linear_key_head_dim", 16}, {"linear_value_head_dim", 16}};
  Json experts = delta;
  experts.update({{"num_experts", 2},
                  {"num_experts_per_tok", 1},
                  {"moe_intermediate_size", 32},
                  {"shared_expert_intermediate_size", 32}});
  return {
      {"phi3", config_with("Phi3ForCausalLM", {{"num_key_value_heads", 2}}), 4, -1},
      {"phi3_ordered", config_with("Phi3ForCausalLM", {{"num_key_value_heads", 2}}), 8, 32, true},
      {"glm4", config_with("Glm4ForCausalLM", {{"head_dim", 16}}), 3},
      {"gpt_neox", config_with("GPTNeoXForCausalLM", Json::object())},
      {"gpt_neox_ordered", config_with("GPTNeoXForCausalLM", Json::object()), 4, 32, true},
      {"bloom", config_with("BloomForCausalLM", {{"n_layer", 1}, {"n_head", 4}}), 8, 32, false,
       "h"},
      {"falcon", config_with("FalconForCausalLM", Json::object()), 4, -1, false, "h"},
      {"falcon_grouped",
       config_with("FalconForCausalLM", {{"new_decoder_architecture", true}, {"num_kv_heads", 2}}),
       2, 32, false, "h"},
      {"gpt2", config_with("GPT2LMHeadModel", {{"n_embd", 64}, {"n_layer", 1}, {"n_head", 4}}), 4,
       32, false, "h"},
      {"qwen3_5", config_with("Qwen3_5ForCausalLM", delta)},
      {"qwen3_next", config_with("Qwen3NextForCausalLM", experts)},
  };
}

// A stored tensor, as the model asks for it.
struct Wanted {
  const Piece* piece = nullptr;
  ParamRole role = ParamRole::linear;
  int64_t outputs = 0;
};
std::map<std::string, Wanted> wanted_of(Model& model) {
  std::map<std::string, Wanted> wanted;
  model.root->each_param([&](Param& param) {
    for (const Piece& p : param.pieces) {
      Wanted& w = wanted[p.source];
      w.piece = &p;
      w.role = param.role;
      w.outputs = std::max(w.outputs, p.stored_output(p.outputs() - 1) + 1);
    }
  });
  return wanted;
}

template <class T>
TinyTensor tensor_of(const std::string& name, std::vector<int64_t> shape, const char* dtype,
                     const std::vector<T>& values) {
  return {name, std::move(shape), dtype,
          std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T))};
}

class GptqFamilies : public testing::TestWithParam<GptqCase> {
 protected:
  GptqFamilies() {
    const GptqCase& c = GetParam();
    test::write_file(codes_ / "config.json", c.config.dump());
    Model model = build_model(codes_.path(), Rank{});
    std::vector<TinyTensor> codes, plain;
    for (const auto& [name, wanted] : wanted_of(model)) add(name, wanted, codes, plain);
    Json config = c.config;
    test::write_checkpoint(plain_.path(), config, plain);
    config["quantization_config"] = {{"quant_method", "gptq"}, {"bits", c.bits},
                                     {"group_size", c.group},  {"desc_act", c.act_order},
                                     {"sym", false},           {"checkpoint_format", "gptq"}};
    test::write_checkpoint(codes_.path(), config, codes);
  }

  void add(const std::string& name, const Wanted& wanted, std::vector<TinyTensor>& codes,
           std::vector<TinyTensor>& plain) {
    const GptqCase& c = GetParam();
    const Piece& piece = *wanted.piece;
    const int64_t inputs = piece.cols, outputs = wanted.outputs;
    const bool fits = !piece.vector && inputs % kRunCols == 0 && outputs * c.bits % 32 == 0;
    if (wanted.role != ParamRole::linear || !fits) {
      const bool norm = wanted.role == ParamRole::norm;
      std::vector<float> values(static_cast<size_t>(piece.vector ? outputs : outputs * inputs));
      for (float& x : values) x = (norm ? 1.0f : 0.0f) + random_.normal(norm ? 0.1f : 0.2f);
      const std::vector<int64_t> shape =
          piece.vector ? std::vector{outputs} : std::vector{outputs, inputs};
      codes.push_back(tensor_of(name, shape, "F32", values));
      plain.push_back(codes.back());
      return;
    }
    const int64_t group = c.group > 0 ? c.group : inputs, groups = ceil_div(inputs, group);
    const test::GptqLayer layer(c.bits, outputs, inputs, group, c.act_order, random_);
    const std::string stem = name.substr(0, name.size() - std::string(".weight").size());
    codes.push_back(
        tensor_of(stem + ".qweight", {inputs * c.bits / 32, outputs}, "I32", layer.qweight));
    codes.push_back(
        tensor_of(stem + ".qzeros", {groups, outputs * c.bits / 32}, "I32", layer.qzeros));
    codes.push_back(tensor_of(stem + ".scales", {groups, outputs}, "F16", layer.scales));
    codes.push_back(tensor_of(stem + ".g_idx", {inputs}, "I32", layer.g_idx));
    std::vector<float> values;
    const bool transposed = piece.view.transposed;
    for (int64_t i = 0; i < inputs * outputs; ++i)
      values.push_back(transposed ? layer.value(i % outputs, i / outputs, 1)
                                  : layer.value(i / inputs, i % inputs, 1));
    plain.push_back(
        tensor_of(name, transposed ? std::vector{inputs, outputs} : std::vector{outputs, inputs},
                  "F32", values));
    ++quantized_;
  }

  test::TempDir codes_, plain_, spill_;
  test::Random random_{"gptq of families"};
  int quantized_ = 0;
};

TEST_P(GptqFamilies, AreTheWeightsThatTheCodesMean) {
  const std::vector<int32_t> prompt{1, 5, 9, 2, 40};
  EXPECT_GE(quantized_, 4);
  test::How how{.dtype = DtypeChoice::f32, .threads = 1};
  const test::Outcome expected = test::run_model(plain_.path(), prompt, 1, how);
  const test::Outcome actual = test::run_model(codes_.path(), prompt, 1, how);
  ASSERT_EQ(actual.logits.size(), expected.logits.size());
  for (size_t p = 0; p < actual.logits.size(); ++p) {
    for (size_t i = 0; i < actual.logits[p].size(); ++i)
      ASSERT_NEAR(actual.logits[p][i], expected.logits[p][i],
                  1e-3 * (1 + std::abs(expected.logits[p][i])));
  }
  how.place = GetParam().layers + "=disk";
  how.spill = spill_.path();
  EXPECT_EQ(test::run_model(codes_.path(), prompt, 1, how).logits, actual.logits);
}

INSTANTIATE_TEST_SUITE_P(All, GptqFamilies, testing::ValuesIn(gptq_cases()),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace sluice
