// Architectures of GGUF whose layers have attention and an MLP.
#include <cmath>

#include "src/models/config.h"
#include "src/models/gguf/architectures/rows.h"

namespace sluice::gguf_rows {
namespace {

const Names kOutputNorms{
    {"post_attention_norm", "model.layers.{}.post_attention_layernorm"},
    {"post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"},
};
const Names kGpt2Names{
    {"token_embd", "transformer.wte"},
    {"position_embd", "transformer.wpe"},
    {"output_norm", "transformer.ln_f"},
    {"output", "lm_head"},
    {"attn_norm", "transformer.h.{}.ln_1"},
    {"attn_qkv", "transformer.h.{}.attn.c_attn"},
    {"attn_output", "transformer.h.{}.attn.c_proj"},
    {"ffn_norm", "transformer.h.{}.ln_2"},
    {"ffn_up", "transformer.h.{}.mlp.c_fc"},
    {"ffn_down", "transformer.h.{}.mlp.c_proj"},
};
const Names kNeoxNames{
    {"token_embd", "gpt_neox.embed_in"},
    {"output_norm", "gpt_neox.final_layer_norm"},
    {"output", "embed_out"},
    {"attn_norm", "gpt_neox.layers.{}.input_layernorm"},
    {"attn_qkv", "gpt_neox.layers.{}.attention.query_key_value"},
    {"attn_output", "gpt_neox.layers.{}.attention.dense"},
    {"ffn_norm", "gpt_neox.layers.{}.post_attention_layernorm"},
    {"ffn_up", "gpt_neox.layers.{}.mlp.dense_h_to_4h"},
    {"ffn_down", "gpt_neox.layers.{}.mlp.dense_4h_to_h"},
};
const Names kBloomNames{
    {"token_embd", "transformer.word_embeddings"},
    {"token_embd_norm", "transformer.word_embeddings_layernorm"},
    {"output_norm", "transformer.ln_f"},
    {"output", "lm_head"},
    {"attn_norm", "transformer.h.{}.input_layernorm"},
    {"attn_qkv", "transformer.h.{}.self_attention.query_key_value"},
    {"attn_output", "transformer.h.{}.self_attention.dense"},
    {"ffn_norm", "transformer.h.{}.post_attention_layernorm"},
    {"ffn_up", "transformer.h.{}.mlp.dense_h_to_4h"},
    {"ffn_down", "transformer.h.{}.mlp.dense_4h_to_h"},
};
const Names kPhi3Names{
    {"attn_qkv", "model.layers.{}.self_attn.qkv_proj"},
    {"ffn_up", "model.layers.{}.mlp.gate_up_proj"},
};
const Names kPhiNames{
    {"output_norm", "model.final_layernorm"},
    {"attn_output", "model.layers.{}.self_attn.dense"},
    {"ffn_up", "model.layers.{}.mlp.fc1"},
    {"ffn_down", "model.layers.{}.mlp.fc2"},
};
const Names kStarcoder2Names{
    {"ffn_up", "model.layers.{}.mlp.c_fc"},
    {"ffn_down", "model.layers.{}.mlp.c_proj"},
};
const Names kChatGlmNames{
    {"attn_qkv", "model.layers.{}.self_attn.qkv_proj"},
    {"ffn_up", "model.layers.{}.mlp.gate_up_proj"},
};
const Names kGlm4Names{
    {"post_attention_norm", "model.layers.{}.post_self_attn_layernorm"},
    {"post_ffw_norm", "model.layers.{}.post_mlp_layernorm"},
    {"ffn_up", "model.layers.{}.mlp.gate_up_proj"},
};
// Norms of StableLM 2 12B's heads are the rows of a matrix.
const Names kStableLmNames{
    {"attn_q_norm", {}, GgufNameEnd::slices},
    {"attn_q_norm.{e}", "model.layers.{}.self_attn.q_layernorm.norms.{e}"},
    {"attn_k_norm", {}, GgufNameEnd::slices},
    {"attn_k_norm.{e}", "model.layers.{}.self_attn.k_layernorm.norms.{e}"},
};
const Names kBitnetNames{
    {"attn_sub_norm", "model.layers.{}.self_attn.attn_sub_norm"},
    {"ffn_sub_norm", "model.layers.{}.mlp.ffn_sub_norm"},
};

// Rows say interleaved() where llama.cpp's converter makes the two of a rotary pair neighbours.
Rows llama_likes() {
  const Keys epsilon{{"attention.layer_norm_epsilon", "layer_norm_eps"}};
  Rows all{
      {"llama", "LlamaForCausalLM", "llama", kCommonKeys, kCommonNames, interleaved()},
      {"internlm2", "LlamaForCausalLM", "llama", kCommonKeys, kCommonNames, interleaved()},
      {"exaone", "LlamaForCausalLM", "llama", kCommonKeys, kCommonNames, {}},
      {"xverse", "LlamaForCausalLM", "llama", kCommonKeys, kCommonNames, interleaved()},
      {"paddleocr", "Ernie4_5ForCausalLM", "paddleocr_vl_text", kCommonKeys, kCommonNames, {}},
      {"maincoder", "MaincoderForCausalLM", "maincoder", kCommonKeys, names(kHeadNorms), {}},
      {"orion",
       "OrionForCausalLM",
       "orion",
       keys({{"attention.layer_norm_epsilon", "rms_norm_eps"}}),
       kCommonNames,
       {}},
      {"qwen2", "Qwen2ForCausalLM", "qwen2", kCommonKeys, kCommonNames, {}},
      {"qwen3", "Qwen3ForCausalLM", "qwen3", kCommonKeys, names(kHeadNorms), {}},
      {"phi3",
       "Phi3ForCausalLM",
       "phi3",
       keys({{"attention.sliding_window", "sliding_window"}}),
       names(kPhi3Names),
       {}},
      {"qwen2vl", "Qwen2ForCausalLM", "qwen2", kCommonKeys, kCommonNames, {}},
      {"qwen25vl", "Qwen2ForCausalLM", "qwen2", kCommonKeys, kCommonNames, {}},  // Ollama's
      {"qwen3vl", "Qwen3ForCausalLM", "qwen3", kCommonKeys, names(kHeadNorms), {}},
      {"smollm3", "SmolLM3ForCausalLM", "smollm3", kCommonKeys, kCommonNames, interleaved()},
      {"arcee", "ArceeForCausalLM", "arcee", kCommonKeys, kCommonNames, interleaved()},
      {"granite", "GraniteForCausalLM", "granite", keys(kGraniteKeys), kCommonNames, interleaved()},
      {"mistral3", "Ministral3ForCausalLM", "ministral3", kCommonKeys, kCommonNames, interleaved()},
      {"olmo", "OlmoForCausalLM", "olmo", keys({{"attention.clamp_kqv", "clip_qkv"}}), kCommonNames,
       interleaved()},
      {"bitnet", "BitNetForCausalLM", "bitnet", kCommonKeys, names(kBitnetNames), {}},
      {"nemotron",
       "NemotronForCausalLM",
       "nemotron",
       keys({{"attention.layer_norm_epsilon", "norm_eps"}}),
       kCommonNames,
       {.norms_have_one = true}},
      {"olmo2",
       "Olmo3ForCausalLM",
       "olmo3",
       keys({{"attention.sliding_window", "sliding_window"}}),
       names(kHeadNorms, kOutputNorms),
       {}},
      {"olmo2", "Olmo2ForCausalLM", "olmo2", kCommonKeys, names(kHeadNorms, kOutputNorms), {}},
      {"starcoder2",
       "Starcoder2ForCausalLM",
       "starcoder2",
       keys({{"attention.layer_norm_epsilon", "norm_epsilon"},
             {"attention.sliding_window", "sliding_window"}}),
       names(kStarcoder2Names),
       {}},
      {"jais2", "Jais2ForCausalLM", "jais2", keys(epsilon), kCommonNames, {}},
      {"phi2", "PhiForCausalLM", "phi", keys(epsilon), names(kPhiNames), {}},
  };
  for (GgufArchitecture& a : all) {
    if (a.architecture == "Olmo3ForCausalLM") a.only_with = "attention.sliding_window";
    a.tokens_take_space = a.name == "phi3";
    if (a.name == "starcoder2") a.signs = {{"attn_output.bias", "use_bias"}};
  }
  return all;
}

// A fixed alpha stretches rope's base, which is that before it.
void derive_hunyuan(const JsonFields& fields, Json& config) {
  const std::string key = fields.string("general.architecture") + ".rope.scaling.alpha";
  const double alpha = fields.number_or(key.c_str(), 0);
  if (alpha > 0)
    config["rope_scaling"] = {{"rope_type", "dynamic"}, {"factor", 1}, {"alpha", alpha}};
}

// Others of such layers, some of whose keys follow from the tensors that are there, or are fixed.
Rows llama_likes_with_values() {
  const Keys epsilon{{"attention.layer_norm_epsilon", "layer_norm_eps"}};
  const GgufQuotient head{"head_dim", "embedding_length", "attention.head_count"};
  Rows all;
  all.push_back(
      {"stablelm", "StableLmForCausalLM", "stablelm", keys(epsilon), names(kStableLmNames), {}});
  all.back().values = {{"partial_rotary_factor", "1"}};
  all.back().signs = {{"attn_q.bias", "use_qkv_bias"},
                      {"attn_q_norm.0.weight", "qk_layernorm"},
                      {"attn_norm.weight", "use_parallel_residual", "ffn_norm.weight"}};
  all.push_back(
      {"seed_oss", "SeedOssForCausalLM", "seed_oss", kCommonKeys, names(kPostAttentionNorm), {}});
  all.back().signs = {{"attn_q.bias", "attention_bias"},
                      {"attn_output.bias", "attention_out_bias"}};
  all.push_back({"exaone4",
                 "Exaone4ForCausalLM",
                 "exaone4",
                 keys({{"attention.sliding_window", "sliding_window"}}),
                 names(kHeadNorms, kOutputNorms),
                 {}});
  all.back().values = {{"sliding_window", "null"}};
  all.push_back({"glm4", "Glm4ForCausalLM", "glm4", kCommonKeys, names(kGlm4Names), {}});
  all.back().values = {{"partial_rotary_factor", "1"}};
  all.back().signs = {{"attn_q.bias", "attention_bias"}};
  all.back().quotients = {head};
  all.push_back({"chatglm", "GlmForCausalLM", "glm", kCommonKeys, names(kChatGlmNames), {}});
  all.back().values = {{"partial_rotary_factor", "1"}};
  all.back().signs = {{"attn_qkv.bias", "attention_bias"}};
  all.back().quotients = {head};
  all.push_back({"ernie4_5", "Ernie4_5ForCausalLM", "ernie4_5", kCommonKeys, kCommonNames, {}});
  all.back().signs = {{"attn_q.bias", "use_bias"}};
  for (const char* name : {"hunyuan-dense", "hunyuan_vl"}) {
    all.push_back({name,
                   "HunYuanDenseV1ForCausalLM",
                   "hunyuan_v1_dense",
                   kCommonKeys,
                   names(kHunyuanNames),
                   {}});
    all.back().derive = derive_hunyuan;
  }
  all.push_back({"pangu-embedded",
                 "PanguEmbeddedForCausalLM",
                 "PanguEmbedded",
                 kCommonKeys,
                 kCommonNames,
                 {}});
  all.back().signs = {{"attn_q.bias", "bias"}};
  all.push_back({"command-r",
                 "CohereForCausalLM",
                 "cohere",
                 keys(epsilon, {{"logit_scale", "logit_scale"}}),
                 names(kHeadNorms),
                 {}});
  all.back().signs = {{"attn_q_norm.weight", "use_qk_norm"}};
  all.push_back({"cohere2",
                 "Cohere2ForCausalLM",
                 "cohere2",
                 keys(epsilon, {{"logit_scale", "logit_scale"},
                                {"attention.sliding_window", "sliding_window"}}),
                 kCommonNames,
                 {}});
  return all;
}

const Names kFalconNames{
    {"token_embd", "transformer.word_embeddings"},
    {"output_norm", "transformer.ln_f"},
    {"output", "lm_head"},
    {"attn_norm", "transformer.h.{}.input_layernorm"},
    {"attn_qkv", "transformer.h.{}.self_attention.query_key_value"},
    {"attn_output", "transformer.h.{}.self_attention.dense"},
    {"ffn_up", "transformer.h.{}.mlp.dense_h_to_4h"},
    {"ffn_down", "transformer.h.{}.mlp.dense_4h_to_h"},
};
// Attention and MLP each have a norm.
const Names kFalconNorms{
    {"attn_norm_2", "transformer.h.{}.ln_attn"},
    {"attn_norm", "transformer.h.{}.ln_mlp"},
};
// A model with several KV heads has the new layout.
Rows falcons() {
  const Keys own = keys({{"attention.head_count_kv", "num_kv_heads"},
                         {"attention.layer_norm_epsilon", "layer_norm_epsilon"}});
  const SourceFacts facts{.stacked_heads = true};
  Rows all{{"falcon", "FalconForCausalLM", "falcon", own,
            merged<GgufName>({kFalconNorms, kFalconNames}, &GgufName::name), facts},
           {"falcon", "FalconForCausalLM", "falcon", own, kFalconNames, facts}};
  all[0].only_with_tensor = "attn_norm_2.weight";
  all[1].values = {{"num_ln_in_parallel_attn", "1"}};
  for (GgufArchitecture& a : all) {
    a.widths = {{"ffn_up.weight", "ffn_hidden_size"}};
    a.derive = [](const JsonFields& fields, Json& config) {
      config["new_decoder_architecture"] =
          fields.integer_or("falcon.attention.head_count_kv", 1, kMaxWidth, 1) > 1;
    };
  }
  return all;
}

const Names kMptNames{
    {"token_embd", "transformer.wte"},
    {"output_norm", "transformer.norm_f"},
    {"output", "lm_head"},
    {"attn_norm", "transformer.blocks.{}.norm_1"},
    {"attn_qkv", "transformer.blocks.{}.attn.Wqkv"},
    {"attn_output", "transformer.blocks.{}.attn.out_proj"},
    {"ffn_norm", "transformer.blocks.{}.norm_2"},
    {"ffn_up", "transformer.blocks.{}.ffn.up_proj"},
    {"ffn_down", "transformer.blocks.{}.ffn.down_proj"},
};
const Names kApertusNames{
    {"attn_norm", "model.layers.{}.attention_layernorm"},
    {"ffn_norm", "model.layers.{}.feedforward_layernorm"},
};

// The key of a branch's factor has its quotient by the root of the number of layers, and that of
// logits the quotient of widths. Older files have neither.
void derive_minicpm(const JsonFields& fields, Json& config) {
  const auto layers = static_cast<double>(fields.integer("minicpm.block_count", 1, kMaxLayers));
  const auto hidden = static_cast<double>(fields.integer("minicpm.embedding_length", 1, kMaxWidth));
  config["scale_emb"] = fields.number_or("minicpm.embedding_scale", 12);
  config["scale_depth"] =
      fields.number_or("minicpm.residual_scale", 1.4 / std::sqrt(layers)) * std::sqrt(layers);
  config["dim_model_base"] = hidden / fields.number_or("minicpm.logit_scale", hidden / 256);
}

// A model with so many layers has ALiBi.
void derive_baichuan(const JsonFields& fields, Json& config) {
  constexpr int64_t kWithAlibi = 40;
  constexpr const char* kPositions = "max_position_embeddings";
  if (fields.integer("baichuan.block_count", 1, kMaxLayers) != kWithAlibi) return;
  if (config.contains(kPositions)) config["model_max_length"] = config[kPositions];
  config.erase(kPositions);
}

const Names kQwen1Names{
    {"token_embd", "transformer.wte"},
    {"output_norm", "transformer.ln_f"},
    {"output", "lm_head"},
    {"attn_norm", "transformer.h.{}.ln_1"},
    {"attn_qkv", "transformer.h.{}.attn.c_attn"},
    {"attn_output", "transformer.h.{}.attn.c_proj"},
    {"ffn_norm", "transformer.h.{}.ln_2"},
    {"ffn_gate", "transformer.h.{}.mlp.w2"},
    {"ffn_up", "transformer.h.{}.mlp.w1"},
    {"ffn_down", "transformer.h.{}.mlp.c_proj"},
};

// Layers' numbers, of which 0 means nothing of a kind, as block_configs has them. Files of DeciLM
// 7B have numbers of KV heads alone.
void derive_deci(const JsonFields& fields, Json& config) {
  constexpr const char *kHeads = "heads", *kKvHeads = "kv_heads", *kWidths = "widths";
  const auto take = [&](const char* key) {
    std::vector<int64_t> sizes;
    for (const Json& size : config.value(key, Json::array())) {
      const double number = size.is_number() ? size.get<double>() : -1;
      if (!(number >= 0 && number <= INT32_MAX))
        fail(ErrorKind::refused, "{}: the {} of a layer are no size", fields.where(), key);
      sizes.push_back(static_cast<int64_t>(number));
    }
    config.erase(key);
    return sizes;
  };
  const std::vector<int64_t> heads = take(kHeads), kv_heads = take(kKvHeads),
                             widths = take(kWidths);
  if (widths.empty() && !kv_heads.empty()) config["num_key_value_heads_per_layer"] = kv_heads;
  if (widths.empty()) return;
  if (!heads.empty()) config["num_attention_heads"] = std::ranges::max(heads);
  const int64_t most = size_in(config, "num_attention_heads", fields);
  const int64_t of_all = size_in(config, "num_key_value_heads", fields);
  config["num_key_value_heads"] = nullptr;
  Json& blocks = config["block_configs"] = Json::array();
  for (size_t l = 0; l < widths.size(); ++l) {
    const int64_t width = widths[l], kv = l < kv_heads.size() ? kv_heads[l] : of_all;
    const bool is_linear = kv == 0 && l < heads.size() && heads[l] != 0;
    if (kv > 0 && most % kv != 0)
      fail(ErrorKind::refused, "{}: a layer has {} KV heads, which do not divide the {} heads",
           fields.where(), kv, most);
    Json attention{{"no_op", kv == 0}, {"replace_with_linear", is_linear}};
    if (kv > 0) attention["n_heads_in_group"] = most / kv;
    blocks.push_back(
        {{"attention", attention}, {"ffn", {{"no_op", width == 0}, {"intermediate_size", width}}}});
  }
}

Rows llamas_under_other_names() {
  Rows all;
  all.push_back({"baichuan",
                 "BaichuanForCausalLM",
                 "baichuan",
                 kCommonKeys,
                 kCommonNames,
                 {.interleaved_rope = true, .parts_apart = true}});
  all.back().values = {{"normalized_head", "false"}};
  all.back().derive = derive_baichuan;
  all.push_back({"qwen",
                 "QWenLMHeadModel",
                 "qwen",
                 keys({{"attention.layer_norm_epsilon", "layer_norm_epsilon"},
                       {"attention.layer_norm_rms_epsilon", "layer_norm_epsilon"},
                       {kGgufFrequencyBase, "rotary_emb_base"}}),
                 kQwen1Names,
                 {}});
  all.push_back({"deci", "DeciLMForCausalLM", "deci", kCommonKeys, kCommonNames, interleaved()});
  all.back().lists = {{"attention.head_count", "heads"},
                      {"attention.head_count_kv", "kv_heads"},
                      {"feed_forward_length", "widths"}};
  all.back().rotated_key = {};  // all of a head is; the first layer may have no heads
  all.back().derive = derive_deci;
  return all;
}

Rows decoders_of_their_own() {
  Rows all{
      {"mpt",
       "MptForCausalLM",
       "mpt",
       {{"context_length", "max_seq_len"},
        {"embedding_length", "d_model"},
        {"block_count", "n_layers"},
        {"attention.head_count", "n_heads"},
        {"attention.layer_norm_epsilon", "layer_norm_epsilon"},
        {"attention.clamp_kqv", "attn_config.clip_qkv"}},
       kMptNames,
       {}},
      {"minicpm", "MiniCPMForCausalLM", "minicpm", kCommonKeys, kCommonNames, interleaved()},
      {"apertus",
       "ApertusForCausalLM",
       "apertus",
       keys({{kGgufFrequencyBase, "rope_parameters.rope_theta"}}),
       names(kApertusNames, kHeadNorms),
       {}},
  };
  all[1].derive = derive_minicpm;
  all[2].values = {{"rope_parameters.rope_type", R"("default")"}};
  all[2].floats = {{"xielu.alpha_p", "model.layers.{}.mlp.act_fn.alpha_p"},
                   {"xielu.alpha_n", "model.layers.{}.mlp.act_fn.alpha_n"},
                   {"xielu.beta", "model.layers.{}.mlp.act_fn.beta", true},
                   {"xielu.eps", "model.layers.{}.mlp.act_fn.eps", true}};
  return all;
}

// Older layouts, whose fused q, k and v lie one behind the other here.
Rows gpts() {
  const Keys own{
      {"context_length", "n_positions"},  {"embedding_length", "n_embd"},
      {"block_count", "n_layer"},         {"attention.head_count", "n_head"},
      {"feed_forward_length", "n_inner"}, {"attention.layer_norm_epsilon", "layer_norm_epsilon"}};
  Rows all{
      {"gpt2", "GPT2LMHeadModel", "gpt2", own, kGpt2Names, {.outputs_first = true}},
      {"gptneox",
       "GPTNeoXForCausalLM",
       "gpt_neox",
       keys({{"attention.layer_norm_epsilon", "layer_norm_eps"},
             {kGgufFrequencyBase, "rotary_emb_base"},
             {"use_parallel_residual", "use_parallel_residual"}}),
       kNeoxNames,
       {.stacked_heads = true},
       "rotary_pct"},
      {"bloom",
       "BloomForCausalLM",
       "bloom",
       {{"context_length", "seq_length"},
        {"embedding_length", "hidden_size"},
        {"block_count", "n_layer"},
        {"attention.head_count", "n_head"},
        {"attention.layer_norm_epsilon", "layer_norm_epsilon"}},
       kBloomNames,
       {.stacked_heads = true}},
      {"starcoder", "GPTBigCodeForCausalLM", "gpt_bigcode", own, kGpt2Names, {}},
  };
  all[1].values = {{"rotary_pct", "1"}};
  return all;
}

}  // namespace

Rows decoders() {
  Rows list;
  for (auto* rows : {llama_likes, llama_likes_with_values, llamas_under_other_names,
                     decoders_of_their_own, falcons, gpts})
    std::ranges::copy(rows(), std::back_inserter(list));
  return list;
}

}  // namespace sluice::gguf_rows
