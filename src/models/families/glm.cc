// ChatGLMModel (ChatGLM2, ChatGLM3, GLM-4-9B as first released): the next one's layout under other
// keys and names.
// GlmForCausalLM (GLM-4-9B) and Glm4ForCausalLM (GLM-4-0414): Llama's layout,
// where neighbours in a part of each head are rotated together, gate and up are
// one tensor, and in the second what a block computes has a norm, too.
// Glm4MoeForCausalLM (GLM-4.5, 4.6): Llama's layout with rope on a part of each
// head, and from some layer on experts beside a shared one.
// SolarOpenForCausalLM (Solar Open): the same with rope on whole heads, and experts in all layers.
// Glm4MoeLiteForCausalLM (GLM-4.7-Flash): the same with latent attention.
// GlmMoeDsaForCausalLM (GLM-5): the same, attending to what an indexer chooses, in all layers or in
// some, whose choice those behind them share.
#include <algorithm>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/families/deepseek.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

// Both classes have the same defaults.
constexpr LayoutDefaults kGlmDefaults{.vocab_size = 151552,
                                      .hidden_size = 4096,
                                      .intermediate_size = 13696,
                                      .num_hidden_layers = 40,
                                      .num_attention_heads = 32,
                                      .num_key_value_heads = 2,
                                      .head_dim = 128,
                                      .max_position_embeddings = 131072,
                                      .rms_norm_eps = 1.5625e-7,
                                      .rope_theta = 10000,
                                      .part_key = "partial_rotary_factor",
                                      .part = 0.5};

constexpr LayoutDefaults kGlmMoe = [] {
  LayoutDefaults defaults = kGlmDefaults;
  defaults.intermediate_size = 10944;
  defaults.num_hidden_layers = 46;
  defaults.num_attention_heads = 96;
  defaults.num_key_value_heads = 8;
  defaults.head_dim = {};
  defaults.rms_norm_eps = 1e-5;
  return defaults;
}();

constexpr LayoutDefaults kGlm4v = [] {
  LayoutDefaults defaults = kGlmDefaults;
  defaults.head_dim = {};
  defaults.max_position_embeddings = 32768;
  defaults.rms_norm_eps = 1e-5;
  defaults.part = 1;
  return defaults;
}();
constexpr LayoutDefaults kGlmOcr = [] {
  LayoutDefaults defaults = kGlm4v;
  defaults.vocab_size = 59392;
  defaults.hidden_size = 1024;
  defaults.intermediate_size = 4096;
  defaults.num_hidden_layers = 16;
  defaults.num_attention_heads = 16;
  defaults.num_key_value_heads = 8;
  defaults.max_position_embeddings = 131072;
  return defaults;
}();

DecoderSpec parse_glm(const JsonFields& config) {
  const std::string type = config.string_or("model_type", "");
  DecoderSpec spec = common_layout(config, type == "glm4v_text"     ? kGlm4v
                                           : type == "glm_ocr_text" ? kGlmOcr
                                                                    : kGlmDefaults);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.rope = RopePairing::neighbours;
  attention.qkv.bias = read_boolean(config, "attention_bias", true);
  MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  fuse(mlp.up, mlp.name + ".gate_up_proj", {0, mlp.width.size});
  return spec;
}

// Refuses what the class that checkpoints bring along has beside the layout that is published.
void refuse_other_chatglm(const JsonFields& c) {
  const auto require = [&](const char* key, bool absent, bool value) {
    if (read_boolean(c, key, absent) != value)
      fail(ErrorKind::refused, "{}: {} is {}, which is not supported", c.where(), key, !value);
  };
  require("rmsnorm", true, true);
  require("apply_residual_connection_post_layernorm", false, false);
  require("post_layer_norm", true, true);
  if (c.has("pre_seq_len"))
    fail(ErrorKind::refused, "{}: pre_seq_len is there (a tuned prefix), which is not supported",
         c.where());
}

// The keys of GlmForCausalLM for those of the older class.
Json chatglm_keys(const JsonFields& c) {
  const int64_t hidden = read_size(c, "hidden_size", 4096);
  const int64_t heads = read_size(c, "num_attention_heads", 32);
  const bool grouped = read_boolean(c, "multi_query_attention", false);
  Json keys = {{"vocab_size", read_size(c, "padded_vocab_size", 65024, kMaxVocab)},
               {"hidden_size", hidden},
               {"intermediate_size", read_size(c, "ffn_hidden_size", 13696, 4 * kMaxWidth)},
               {"num_hidden_layers", read_size(c, "num_layers", 28, kMaxLayers)},
               {"num_attention_heads", heads},
               {"num_key_value_heads", grouped ? read_size(c, "multi_query_group_num", 1) : heads},
               {"head_dim", read_size(c, "kv_channels", 128)},
               {"max_position_embeddings", read_size(c, "seq_length", 2048, kMaxPositions)},
               {"rms_norm_eps", c.number_or("layernorm_epsilon", 1e-5)},
               {"rope_theta", 10000 * read_factor(c, "rope_ratio", 1)},
               {"tie_word_embeddings", read_boolean(c, "tie_word_embeddings", false)}};
  return keys;
}

DecoderSpec parse_chatglm(const JsonFields& c) {
  refuse_other_chatglm(c);
  const Json keys = chatglm_keys(c);
  DecoderSpec spec = parse_glm(JsonFields(keys, c.where()));
  LayerSpec& layer = spec.kinds.front();
  layer.name = "transformer.encoder.layers.{}";
  AttentionSpec& attention = layer.mixers.front().attention();
  const bool bias = read_boolean(c, "add_bias_linear", false);
  layer.mixers.front().norm.name = layer.name + ".input_layernorm";
  attention.name = layer.name + ".self_attention";
  fuse(attention.qkv, attention.name + ".query_key_value",
       {0, attention.heads.size, attention.heads.size + attention.kv_heads.size});
  attention.qkv.bias = bias || read_boolean(c, "add_qkv_bias", false);
  attention.output = one_linear(attention.name + ".dense", bias);
  MlpBranch& mlp = layer.mlps.front();
  mlp.norm.name = layer.name + ".post_attention_layernorm";
  mlp.mlp.name = layer.name + ".mlp";
  fuse(mlp.mlp.up, mlp.mlp.name + ".dense_h_to_4h", {0, mlp.mlp.width.size});
  mlp.mlp.down = one_linear(mlp.mlp.name + ".dense_4h_to_h", bias);
  mlp.mlp.up.bias = bias;
  spec.embedding = "transformer.embedding.word_embeddings";
  spec.norm.name = "transformer.encoder.final_layernorm";
  spec.head = "transformer.output_layer";
  return spec;
}

DecoderSpec parse_glm4(const JsonFields& config) {
  DecoderSpec spec = parse_glm(config);
  LayerSpec& layer = spec.kinds.front();
  layer.mixers.front().output_norm = {layer.name + ".post_self_attn_layernorm", spec.norm.params};
  layer.mlps.front().output_norm = {layer.name + ".post_mlp_layernorm", spec.norm.params};
  if (config.string_or("model_type", "") == "glm_ocr_text") {
    layer.mixers.front().attention().qkv.bias = false;
    ignore_more_layers(config, spec);
  }
  return spec;
}

constexpr LayoutDefaults kGlmLite{.vocab_size = 154880,
                                  .hidden_size = 2048,
                                  .intermediate_size = 10240,
                                  .num_hidden_layers = 47,
                                  .num_attention_heads = 20,
                                  .num_key_value_heads = 20,
                                  .max_position_embeddings = 202752,
                                  .rms_norm_eps = 1e-5,
                                  .rope_theta = 10000};

DecoderSpec parse_glm_lite(const JsonFields& c) {
  constexpr MlaDefaults kMla{.query_rank = 768, .nope_dim = 192, .value_dim = 256};
  DecoderSpec spec = common_layout(c, latent_defaults(c, kMla, kGlmLite));
  use_mla(c, kMla, spec.ropes.front(), spec.kinds.front());
  ExpertsSpec experts = deepseek_experts(c, {.count = 64, .top_k = 4, .width = 1536},
                                         spec.kinds.front().mlps.front().mlp);
  read_grouped_choice(c, {.factor = 1.8}, experts);
  use_experts(spec, experts, read_mlp_layer_types(c, std::ssize(spec.layers), 1));
  ignore_more_layers(c, spec);
  return spec;
}

constexpr LayoutDefaults kGlmDsa = [] {
  LayoutDefaults defaults = kGlmLite;
  defaults.hidden_size = 6144;
  defaults.intermediate_size = 12288;
  defaults.num_hidden_layers = 78;
  defaults.num_attention_heads = 64;
  defaults.num_key_value_heads = 64;
  return defaults;
}();

// The layers that share the choice of the layer before: indexer_types says it, else a pattern of
// letters or of names, else each index_topk_freq-th from a layer on has an indexer.
std::vector<bool> read_shared_choices(const JsonFields& c, int64_t layers) {
  std::vector<bool> shared;
  for (size_t kind : read_layer_types(c, layers, {"full", "shared"}, "indexer_types"))
    shared.push_back(kind == 1);
  if (!shared.empty()) return shared;
  if (c.has("index_topk_pattern") && c.raw("index_topk_pattern").is_string()) {
    const std::string pattern = c.string("index_topk_pattern");
    if (std::ssize(pattern) != layers || pattern.find_first_not_of("FS") != std::string::npos)
      fail(ErrorKind::refused, "{}: index_topk_pattern must have F or S for each of {} layers",
           c.where(), layers);
    for (char kind : pattern) shared.push_back(kind == 'S');
    return shared;
  }
  for (size_t kind : read_layer_types(c, layers, {"full", "shared"}, "index_topk_pattern"))
    shared.push_back(kind == 1);
  if (!shared.empty()) return shared;
  const int64_t each = std::max<int64_t>(1, c.integer_or("index_topk_freq", 0, kMaxLayers, 1));
  const int64_t first = c.integer_or("index_skip_topk_offset", 0, kMaxLayers, 2);
  for (int64_t l = 0; l < layers; ++l)
    shared.push_back(std::max<int64_t>(l - first + 1, 0) % each != 0);
  return shared;
}

DecoderSpec parse_glm_dsa(const JsonFields& c) {
  constexpr MlaDefaults kMla{
      .query_rank = 2048, .nope_dim = 192, .value_dim = 256, .may_interleave = false};
  DecoderSpec spec = common_layout(c, latent_defaults(c, kMla, kGlmDsa));
  use_mla(c, kMla, spec.ropes.front(), spec.kinds.front());
  const std::vector<bool> shared = read_shared_choices(c, std::ssize(spec.layers));
  if (shared.front())
    fail(ErrorKind::refused, "{}: the first layer has no indexer, nor one before it", c.where());
  spec.kinds.push_back(spec.kinds.front());
  for (const bool shares : {false, true})
    use_indexer(c, {.heads = 32, .rope = RopePairing::neighbours}, shares,
                spec.kinds[shares ? 1 : 0]);
  for (size_t l = 0; l < shared.size(); ++l) spec.layers[l] = shared[l] ? 1 : 0;
  ExpertsSpec experts = deepseek_experts(c, {}, spec.kinds.front().mlps.front().mlp);
  read_grouped_choice(c, {.factor = 2.5}, experts);
  use_experts(spec, experts, read_mlp_layer_types(c, std::ssize(spec.layers), 3));
  ignore_more_layers(c, spec);
  return spec;
}

DecoderSpec parse_glm_moe(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, kGlmMoe);
  LayerSpec& layer = spec.kinds.front();
  AttentionSpec& attention = layer.mixers.front().attention();
  attention.qkv.bias = read_boolean(c, "attention_bias", false);
  if (read_boolean(c, "use_qk_norm", false)) {
    attention.q_norm = {attention.name + ".q_norm", spec.norm.params};
    attention.k_norm = {attention.name + ".k_norm", spec.norm.params};
  }
  const MlpSpec& mlp = layer.mlps.front().mlp;
  ExpertsSpec experts = read_experts(
      c,
      {.count = {"n_routed_experts", "num_local_experts"}, .absent_count = 128, .absent_top_k = 8});
  read_grouped_choice(c, {.normalized = true}, experts);
  const int64_t width = read_size(c, "moe_intermediate_size", 1408, 4 * kMaxWidth);
  name_experts(experts, mlp, width);
  experts.choice_bias = mlp.name + ".gate.e_score_correction_bias";
  experts.shared = mlp_like(mlp, mlp.name + ".shared_experts",
                            width * read_size(c, "n_shared_experts", 1, kMostExperts));
  const int64_t dense = c.integer_or("first_k_dense_replace", 0, kMaxLayers, 1);
  const auto layers = std::ssize(spec.layers);
  use_experts(spec, experts, sparse_from(dense, layers));
  ignore_more_layers(c, spec);
  return spec;
}

constexpr LayoutDefaults kSolarOpen{.vocab_size = 196608,
                                    .hidden_size = 4096,
                                    .num_hidden_layers = 48,
                                    .num_attention_heads = 64,
                                    .num_key_value_heads = 8,
                                    .head_dim = 128,
                                    .max_position_embeddings = 131072,
                                    .rms_norm_eps = 1e-5,
                                    .rope_theta = 1000000,
                                    .part_key = "partial_rotary_factor"};

DecoderSpec parse_solar_open(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, kSolarOpen);
  LayerSpec& layer = spec.kinds.front();
  layer.mixers.front().attention().qkv.bias = read_boolean(c, "attention_bias", false);
  ExpertsSpec experts = deepseek_experts(c, {.count = 128, .width = 1280}, layer.mlps.front().mlp);
  read_grouped_choice(c, {}, experts);
  use_experts(spec, experts, sparse_from(0, std::ssize(spec.layers)));
  return spec;
}

}  // namespace

std::vector<Family> glm_families() {
  return {{"ChatGLMModel", "chatglm", parse_chatglm, {"transformer.vision.*"}},
          {"GlmForCausalLM", "glm", parse_glm, {}},
          {"Glm4ForCausalLM", "glm4", parse_glm4, {}, {"glm4v_text", "glm_ocr_text"}},
          {"Glm4MoeForCausalLM", "glm4_moe", parse_glm_moe, {}, {"glm4v_moe_text"}},
          {"Glm4MoeLiteForCausalLM", "glm4_moe_lite", parse_glm_lite, {}},
          {"SolarOpenForCausalLM", "solar_open", parse_solar_open, {}},
          {"GlmMoeDsaForCausalLM", "glm_moe_dsa", parse_glm_dsa, {}}};
}

}  // namespace sluice
