// LlamaForCausalLM (Llama 2, 3, 3.1, 3.2, and everything that is published in its layout).
// InternLM2ForCausalLM (InternLM2, InternLM2.5): the same under other names, with the queries, the
// key and the value of each KV head next to each other in one tensor. AriaTextForCausalLM (Aria's
// language model): with stacked experts beside a shared one. MllamaForCausalLM (Llama 3.2
// Vision's): its layers that attend to images do nothing where there are none. InternLMForCausalLM
// (InternLM) and PanguEmbeddedForCausalLM (openPangu Embedded): with biases of attention.
// MaincoderForCausalLM (Maincoder): norms of each head after rope, which turns neighbours.
#include <algorithm>

#include "io/file.h"
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kLlamaDefaults{.vocab_size = 32000,
                                        .hidden_size = 4096,
                                        .intermediate_size = 11008,
                                        .num_hidden_layers = 32,
                                        .num_attention_heads = 32,
                                        .num_key_value_heads = std::nullopt,
                                        .max_position_embeddings = 2048,
                                        .rms_norm_eps = 1e-6,
                                        .rope_theta = 10000};

// Classes of their own for this layout.
LayoutDefaults llama_defaults(const std::string& model_type) {
  LayoutDefaults defaults = kLlamaDefaults;
  if (model_type == "emu3_text_model") {
    defaults.vocab_size = 184622;
    defaults.intermediate_size = 14336;
    defaults.num_key_value_heads = 8;
    defaults.max_position_embeddings = 9216;
    defaults.rms_norm_eps = 1e-5;
    defaults.rope_theta = 1000000;
  }
  if (model_type != "internlm3" && model_type != "iquestcoder") return defaults;
  const bool coder = model_type == "iquestcoder";
  defaults.vocab_size = coder ? 76800 : 128512;
  defaults.hidden_size = coder ? 5120 : 4096;
  defaults.intermediate_size = coder ? 27648 : 10240;
  defaults.num_hidden_layers = coder ? 80 : 48;
  defaults.num_attention_heads = coder ? 40 : 32;
  defaults.num_key_value_heads = coder ? 8 : 2;
  defaults.head_dim = 128;
  defaults.max_position_embeddings = coder ? 131072 : 32768;
  defaults.rms_norm_eps = 1e-5;
  return defaults;
}

DecoderSpec llama_layout(const JsonFields& config, const LayoutDefaults& defaults) {
  DecoderSpec spec = common_layout(config, defaults);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.qkv.bias = attention.output.bias =
      read_boolean(config, present(config, "attention_bias", "qkv_bias"), false);
  MlpSpec& mlp = layer.mlps.front().mlp;
  mlp.up.bias = mlp.down.bias = read_boolean(config, present(config, "mlp_bias", "bias"), false);
  return spec;
}

DecoderSpec parse_llama(const JsonFields& config) {
  return llama_layout(config, llama_defaults(config.string_or("model_type", "")));
}

// Defaults of the class that checkpoints bring along.
constexpr LayoutDefaults kInternLm2Defaults{.vocab_size = 103168,
                                            .hidden_size = 4096,
                                            .intermediate_size = 11008,
                                            .num_hidden_layers = 32,
                                            .num_attention_heads = 32,
                                            .max_position_embeddings = 2048,
                                            .rms_norm_eps = 1e-6,
                                            .rope_theta = 10000};

void name_internlm2_attention(LayerSpec& layer, bool bias) {
  AttentionSpec& a = layer.mixers.front().attention();
  a.name = layer.name + ".attention";
  const std::string qkv = a.name + ".wqkv";
  const int64_t d = a.head_dim, queries = a.heads.size / a.kv_heads.units();
  const int64_t stride = queries + 2 * d;
  a.heads.multiple_of = queries;  // ranks have whole groups
  a.qkv = {qkv,
           {{qkv, {.group = queries, .stride = stride}},
            {qkv, {.first = queries, .group = d, .stride = stride}},
            {qkv, {.first = queries + d, .group = d, .stride = stride}}},
           bias};
  a.output = one_linear(a.name + ".wo", bias);
}

DecoderSpec parse_internlm2(const JsonFields& config) {
  DecoderSpec spec = common_layout(config, kInternLm2Defaults);
  LayerSpec& layer = spec.kinds.front();
  name_internlm2_attention(layer, read_boolean(config, "bias", true));
  layer.mixers.front().norm.name = layer.name + ".attention_norm";
  MlpBranch& mlp = layer.mlps.front();
  mlp.norm.name = layer.name + ".ffn_norm";
  name_mlp(mlp.mlp, layer.name + ".feed_forward", "w1", "w3", "w2");
  spec.embedding = "model.tok_embeddings";
  spec.head = "output";
  return spec;
}

// Defaults of the classes that checkpoints bring along.
constexpr LayoutDefaults kPangu{.vocab_size = 153376,
                                .hidden_size = 4096,
                                .intermediate_size = 12800,
                                .num_hidden_layers = 34,
                                .num_attention_heads = 32,
                                .num_key_value_heads = 8,
                                .max_position_embeddings = 32768,
                                .rms_norm_eps = 1e-5,
                                .rope_theta = 16000000};

DecoderSpec with_attention_bias(const JsonFields& config, const LayoutDefaults& defaults) {
  DecoderSpec spec = common_layout(config, defaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(config, "bias", true);
  return spec;
}

// InternLM's class has fields of its own for rope: its base and its type, origin or dynamic.
DecoderSpec parse_internlm(const JsonFields& c) {
  constexpr const char* kRotary = "rotary";
  if (!c.has(kRotary) || c.is_null(kRotary)) return with_attention_bias(c, kInternLm2Defaults);
  const JsonFields rotary(c.raw(kRotary), c.where() + ": " + kRotary);
  const std::string type = rotary.string("type");
  if (type != "origin" && type != "dynamic")
    fail(ErrorKind::refused, "{}: type is {}, but must be origin or dynamic", rotary.where(),
         io::printable(type));
  Json config = c.object();
  config["rope_theta"] = rotary.number_or("base", kInternLm2Defaults.rope_theta);
  if (type == "dynamic")
    config["rope_scaling"] = {{"rope_type", type},
                              {"factor", rotary.number_or("scaling_factor", 1)}};
  return with_attention_bias(JsonFields(config, c.where()), kInternLm2Defaults);
}

DecoderSpec parse_pangu(const JsonFields& config) { return with_attention_bias(config, kPangu); }

constexpr LayoutDefaults kMaincoder{.vocab_size = 151936,
                                    .hidden_size = 1536,
                                    .intermediate_size = 4096,
                                    .num_hidden_layers = 32,
                                    .num_attention_heads = 16,
                                    .num_key_value_heads = 4,
                                    .max_position_embeddings = 2048,
                                    .rms_norm_eps = 1e-5,
                                    .rope_theta = 1000000};

DecoderSpec parse_maincoder(const JsonFields& config) {
  DecoderSpec spec = llama_layout(config, kMaincoder);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.rope = RopePairing::neighbours;
  attention.norms_after_rope = true;
  attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
  attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  return spec;
}

constexpr LayoutDefaults kMllama{.vocab_size = 128256,
                                 .hidden_size = 4096,
                                 .intermediate_size = 14336,
                                 .num_hidden_layers = 40,
                                 .num_attention_heads = 32,
                                 .num_key_value_heads = 8,
                                 .max_position_embeddings = 131072,
                                 .rms_norm_eps = 1e-5,
                                 .rope_theta = 500000};

// The table has rows of tokens of images behind the vocabulary.
DecoderSpec parse_mllama(const JsonFields& c) {
  constexpr int64_t kImageTokens = 8;
  DecoderSpec spec = common_layout(c, kMllama);
  spec.table_rows = spec.vocab_size + kImageTokens;
  const std::string layer = spec.kinds.front().name;
  spec.kinds.push_back({.name = layer, .mixers = {}, .mlps = {}});
  const std::vector<double> of_images =
      read_numbers(c, "cross_attention_layers")
          .value_or(std::vector<double>{3, 8, 13, 18, 23, 28, 33, 38});
  for (int64_t l = 0; l < std::ssize(spec.layers); ++l) {
    if (std::ranges::count(of_images, static_cast<double>(l)) == 0) continue;
    spec.layers[static_cast<size_t>(l)] = 1;
    spec.ignorable.push_back(name_in_layer(layer + ".*", l));
  }
  return spec;
}

// Tensors [experts, inputs, outputs] of all experts; a softmax of the chosen ones.
DecoderSpec parse_aria(const JsonFields& config) {
  LayoutDefaults defaults = kLlamaDefaults;
  defaults.intermediate_size = 4096;
  DecoderSpec spec = llama_layout(config, defaults);
  const MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  const int64_t width = mlp.width.size;
  ExpertsSpec experts = read_experts(
      config,
      {.count = {"moe_num_experts"}, .absent_count = 8, .top_k = "moe_topk", .absent_top_k = 2});
  name_experts(experts, mlp, width);
  experts.router = one_linear(mlp.name + ".router", false);
  experts.choice.normalized = true;
  experts.expert.activation = Activation::silu;
  stack_experts(experts, mlp.name + ".experts.fc1", mlp.name + ".experts.fc2", false);
  for (PartSpec& part : experts.expert.up.parts) part.view.transposed = true;
  experts.expert.down.parts.front().view.transposed = true;
  const int64_t shared = read_size(config, "moe_num_shared_experts", 2, kMostExperts);
  experts.shared = mlp_like(mlp, mlp.name + ".shared_experts", shared * width);
  use_experts(spec, experts, sparse_from(0, std::ssize(spec.layers)));
  return spec;
}

}  // namespace

std::vector<Family> llama_families() {
  return {{"AriaTextForCausalLM", "aria_text", parse_aria, {}},
          {"InternLMForCausalLM", "internlm", parse_internlm, {}},
          {"InternLM2ForCausalLM", "internlm2", parse_internlm2, {}},
          {"MaincoderForCausalLM", "maincoder", parse_maincoder, {}},
          {"PanguEmbeddedForCausalLM", "PanguEmbedded", parse_pangu, {}},
          {"LlamaForCausalLM",
           "llama",
           parse_llama,
           {"vision_tower.*", "*.vision_tower.*", "mtp.*", "*.mtp.*"},
           {"internlm3", "iquestcoder", "xverse", "emu3_text_model"}},
          {"MllamaForCausalLM", "mllama_text_model", parse_mllama, {}}};
}

}  // namespace sluice
