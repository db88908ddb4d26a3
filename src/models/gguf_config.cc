#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "io/file.h"
#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/gguf.h"

namespace sluice {
namespace {

constexpr std::string_view kFrequencyBase = "rope.freq_base";
constexpr std::string_view kKvHeads = "attention.head_count_kv", kMlpWidth = "feed_forward_length";

// Llama's, which most share. Keys whose values mean something else elsewhere are in the rows of
// the architectures.
const std::vector<GgufKey> kGgufKeys{
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"block_count", "num_hidden_layers"},
    {kMlpWidth, "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {kKvHeads, "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {kFrequencyBase, "rope_theta"},
};
const std::vector<GgufName> kNames{
    {"token_embd", "model.embed_tokens"},
    {"output_norm", "model.norm"},
    {"output", "lm_head"},
    {"attn_norm", "model.layers.{}.input_layernorm"},
    {"attn_q", "model.layers.{}.self_attn.q_proj"},
    {"attn_k", "model.layers.{}.self_attn.k_proj"},
    {"attn_v", "model.layers.{}.self_attn.v_proj"},
    {"attn_output", "model.layers.{}.self_attn.o_proj"},
    {"ffn_norm", "model.layers.{}.post_attention_layernorm"},
    {"ffn_gate", "model.layers.{}.mlp.gate_proj"},
    {"ffn_up", "model.layers.{}.mlp.up_proj"},
    {"ffn_down", "model.layers.{}.mlp.down_proj"},
};
const std::vector<GgufName> kHeadNorms{
    {"attn_q_norm", "model.layers.{}.self_attn.q_norm"},
    {"attn_k_norm", "model.layers.{}.self_attn.k_norm"},
};
const std::vector<GgufName> kGemmaNorms{
    {"post_attention_norm", "model.layers.{}.post_attention_layernorm"},
    {"ffn_norm", "model.layers.{}.pre_feedforward_layernorm"},
    {"post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"},
};
const std::vector<GgufName> kGpt2Names{
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
const std::vector<GgufName> kNeoxNames{
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
const std::vector<GgufName> kPhi3Names{
    {"attn_qkv", "model.layers.{}.self_attn.qkv_proj"},
    {"ffn_up", "model.layers.{}.mlp.gate_up_proj"},
};

// `first`, and those of `second` that it has not.
template <class Row>
std::vector<Row> merged(std::vector<Row> first, const std::vector<Row>& second, auto key) {
  const size_t own = first.size();
  for (const Row& row : second) {
    auto end = first.begin() + static_cast<ptrdiff_t>(own);
    if (std::ranges::find(first.begin(), end, std::invoke(key, row), key) == end)
      first.push_back(row);
  }
  return first;
}
std::vector<GgufKey> with_common(const std::vector<GgufKey>& keys) {
  return merged(keys, kGgufKeys, &GgufKey::key);
}
std::vector<GgufName> with(const std::vector<GgufName>& names, const std::vector<GgufName>& more) {
  return merged(names, more, &GgufName::name);
}

// The converter of llama.cpp writes the rows of q and k of these so that the two of a rotary pair
// are neighbours, adds the 1 of Gemma's norms to the weights, ...
const std::vector<GgufArchitecture>& architectures() {
  static const std::vector<GgufArchitecture> all{
      {"llama", "LlamaForCausalLM", "llama", kGgufKeys, kNames, {.interleaved_rope = true}},
      {"qwen2", "Qwen2ForCausalLM", "qwen2", kGgufKeys, kNames, {}},
      {"qwen3", "Qwen3ForCausalLM", "qwen3", kGgufKeys, with(kHeadNorms, kNames), {}},
      {"gemma", "GemmaForCausalLM", "gemma", kGgufKeys, kNames, {.norms_have_one = true}},
      {"gemma2",
       "Gemma2ForCausalLM",
       "gemma2",
       with_common({{"attention.sliding_window", "sliding_window"},
                    {"attn_logit_softcapping", "attn_logit_softcapping"},
                    {"final_logit_softcapping", "final_logit_softcapping"}}),
       with(kGemmaNorms, kNames),
       {.norms_have_one = true},
       "partial_rotary_factor",
       46},
      {"gemma3",
       "Gemma3ForCausalLM",
       "gemma3_text",
       with_common({{"attention.sliding_window", "sliding_window"},
                    {"final_logit_softcapping", "final_logit_softcapping"},
                    {"rope.freq_base_swa", "rope_local_base_freq"}}),
       with(kGemmaNorms, with(kHeadNorms, kNames)),
       {.norms_have_one = true},
       "partial_rotary_factor",
       62},
      {"gpt2",
       "GPT2LMHeadModel",
       "gpt2",
       {{"context_length", "n_positions"},
        {"embedding_length", "n_embd"},
        {"block_count", "n_layer"},
        {"attention.head_count", "n_head"},
        {kMlpWidth, "n_inner"},
        {"attention.layer_norm_epsilon", "layer_norm_epsilon"}},
       kGpt2Names,
       {.outputs_first = true}},
      {"gptneox",
       "GPTNeoXForCausalLM",
       "gpt_neox",
       with_common({{"attention.layer_norm_epsilon", "layer_norm_eps"},
                    {kFrequencyBase, "rotary_emb_base"},
                    {"use_parallel_residual", "use_parallel_residual"}}),
       kNeoxNames,
       {.stacked_heads = true},
       "rotary_pct"},
      {"phi3",
       "Phi3ForCausalLM",
       "phi3",
       with_common({{"attention.sliding_window", "sliding_window"}}),
       with(kPhi3Names, kNames),
       {}},
  };
  return all;
}

const io::StoredTensor* find_tensor(const io::GgufCheckpoint& checkpoint, std::string_view name) {
  auto found = std::ranges::find(checkpoint.tensors, name, &io::StoredTensor::name);
  return found == checkpoint.tensors.end() ? nullptr : &*found;
}

void set_scaling(const JsonFields& fields, const std::string& prefix, const RopeFactors& factors,
                 Json& config) {
  const std::string at = prefix + "rope.scaling.", older = prefix + "rope.scale_linear";
  const bool has_factors = !factors.long_ones.empty() || !factors.short_ones.empty();
  // A factor without a type is linear; its key was another one before there were types. 0: none.
  const double factor =
      fields.number_or((at + "factor").c_str(), fields.number_or(older.c_str(), 0));
  const std::string type = fields.string_or((at + "type").c_str(), factor == 0 ? "none" : "linear");
  if ((type == "none" || (type == "linear" && factor == 0)) && !has_factors) return;
  Json& scaling = config["rope_scaling"] = {{"rope_type", has_factors ? "longrope" : type}};
  if (factor != 0) scaling["factor"] = factor;
  const auto take = [&](const char* key, const char* config_key) {
    const std::string full = at + key;
    if (fields.has(full.c_str())) scaling[config_key] = fields.raw(full.c_str());
  };
  take("attn_factor", "attention_factor");
  take("yarn_beta_fast", "beta_fast");
  take("yarn_beta_slow", "beta_slow");
  constexpr const char* kOriginal = "original_max_position_embeddings";
  take("original_context_length", kOriginal);
  if (scaling.contains(kOriginal)) config[kOriginal] = scaling[kOriginal];  // where Phi-3 has it
  if (!has_factors) return;
  scaling["long_factor"] = factors.long_ones;
  scaling["short_factor"] = factors.short_ones;
}

// head_dim, or what follows from other sizes.
int64_t head_size(const JsonFields& made) {
  const int64_t heads = made.integer("num_attention_heads", 1, kMaxWidth);
  return made.integer_or("head_dim", 1, kMaxWidth,
                         made.integer("hidden_size", 1, kMaxWidth) / heads);
}

// The part of each head that turns.
void set_rotated(const JsonFields& fields, const std::string& prefix, std::string_view key,
                 Json& config) {
  const std::string name = prefix + "rope.dimension_count";
  if (!fields.has(name.c_str()) || !config.contains("num_attention_heads")) return;
  const int64_t head = head_size(JsonFields(config, fields.where()));
  const int64_t rotated = fields.integer(name.c_str(), 1, kMaxWidth);
  if (rotated != head)
    config[std::string(key)] = static_cast<double>(rotated) / static_cast<double>(head);
}

void set_score_divisor(const JsonFields& fields, int64_t deepest, Json& config) {
  if (deepest == 0 || !config.contains("num_attention_heads")) return;
  const JsonFields made(config, fields.where());
  const bool is_deepest = made.integer("num_hidden_layers", 1, kMaxLayers) == deepest;
  const int64_t divisor = is_deepest ? made.integer("hidden_size", 1, kMaxWidth) /
                                           made.integer("num_attention_heads", 1, kMaxWidth)
                                     : head_size(made);
  config["query_pre_attn_scalar"] = divisor;
}

// How weights are computed with, where nothing is asked for: as the matrices are stored.
const char* torch_dtype(const io::GgufCheckpoint& checkpoint) {
  const io::StoredTensor* table = find_tensor(checkpoint, "token_embd.weight");
  if (table != nullptr && table->dtype == DType::f16) return "float16";
  return table != nullptr && table->dtype == DType::f32 ? "float32" : "bfloat16";
}

// The integers of an array with one for each layer; empty: there is no such array.
std::vector<int64_t> layer_numbers(const io::GgufHeader& header, const std::string& architecture,
                                   std::string_view key) {
  const std::string full = fmt::format("{}.{}", architecture, key);
  if (!header.arrays.contains(full)) return {};
  const JsonFields fields(header.values, io::printable(header.file.path.string()));
  const std::vector<double> numbers = read_gguf_numbers(header, full);
  const int64_t layers = fields.integer((architecture + ".block_count").c_str(), 1, kMaxLayers);
  if (std::ssize(numbers) != layers)
    fail(ErrorKind::refused, "{}: {} has {} values for {} layers", fields.where(), full,
         numbers.size(), layers);
  std::vector<int64_t> whole;
  for (double number : numbers) {
    if (number < 0 || number > 4 * kMaxWidth || number != std::floor(number))
      fail(ErrorKind::refused, "{}: {} must have whole numbers from 0 to {}", fields.where(), full,
           4 * kMaxWidth);
    whole.push_back(static_cast<int64_t>(number));
  }
  return whole;
}

bool all_equal(const std::vector<int64_t>& numbers) {
  return std::ranges::all_of(numbers, [&](int64_t n) { return n == numbers.front(); });
}

// Which layers have a window: a value for each, or a number of layers of which the last has none.
void set_windows(const JsonFields& fields, const io::GgufHeader& header,
                 const std::string& architecture, Json& config) {
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  std::vector<int64_t> sliding = layer_numbers(header, architecture, kPattern);
  const std::string key = fmt::format("{}.{}", architecture, kPattern);
  if (fields.has(key.c_str()) && fields.raw(key.c_str()).is_number()) {
    const int64_t each = fields.integer(key.c_str(), 0, kMaxLayers);
    const int64_t layers = fields.integer((architecture + ".block_count").c_str(), 1, kMaxLayers);
    for (int64_t l = 1; l <= layers; ++l) sliding.push_back(each == 0 || l % each != 0 ? 1 : 0);
  }
  if (sliding.empty() || !config.contains("sliding_window")) return;
  Json& types = config["layer_types"] = Json::array();
  for (int64_t has : sliding) types.push_back(has != 0 ? "sliding_attention" : "full_attention");
}

// Embedding models may attend to what comes behind a token, too.
void refuse_bidirectional(const JsonFields& fields, const std::string& prefix) {
  const std::string causal = prefix + "attention.causal";
  if (!fields.boolean_or(causal.c_str(), true))
    fail(ErrorKind::refused, "{}: {} is false, which is not supported", fields.where(), causal);
}

}  // namespace

const GgufArchitecture& find_gguf_architecture(const io::GgufHeader& header) {
  const JsonFields fields(header.values, io::printable(header.file.path.string()));
  const std::string name = fields.string("general.architecture");
  auto found = std::ranges::find(architectures(), name, &GgufArchitecture::name);
  if (found != architectures().end()) return *found;
  std::vector<std::string_view> known;
  for (const GgufArchitecture& a : architectures()) known.push_back(a.name);
  fail(ErrorKind::refused, "{}: general.architecture {} is not supported; supported: {}",
       fields.where(), io::printable(name), fmt::join(known, ", "));
}

Json gguf_config(const GgufArchitecture& architecture, const io::GgufCheckpoint& checkpoint,
                 const RopeFactors& factors) {
  const JsonFields fields(checkpoint.header.values,
                          io::printable(checkpoint.header.file.path.string()));
  const std::string prefix = std::string(architecture.name) + ".";
  const std::string experts = prefix + "expert_count";
  if (fields.integer_or(experts.c_str(), 0, INT32_MAX, 0) > 0) {
    fail(ErrorKind::refused, "{}: {} is {}: models with experts are not supported yet",
         fields.where(), experts, fields.integer(experts.c_str(), 0, INT32_MAX));
  }
  refuse_bidirectional(fields, prefix);
  Json config{{"architectures", {architecture.architecture}},
              {"model_type", architecture.model_type},
              {"torch_dtype", torch_dtype(checkpoint)},
              {"tie_word_embeddings", find_tensor(checkpoint, "output.weight") == nullptr}};
  for (const GgufKey& row : architecture.keys) {
    const std::string key = prefix + std::string(row.key);
    const std::vector<int64_t> of_layers =
        layer_numbers(checkpoint.header, std::string(architecture.name), row.key);
    if (!of_layers.empty()) {
      const bool may_differ = row.key == kKvHeads || row.key == kMlpWidth;
      if (!may_differ && !all_equal(of_layers))
        fail(ErrorKind::refused, "{}: {} differs from layer to layer, which is not supported",
             fields.where(), key);
      config[std::string(row.config_key)] = of_layers.front();
    } else if (fields.has(key.c_str())) {
      config[std::string(row.config_key)] = fields.raw(key.c_str());
    } else if (row.key == kFrequencyBase) {
      config[std::string(row.config_key)] = 10000;  // the format's default, not the class's
    }
  }
  // Converters do not agree on vocab_size; the table's rows are what there is.
  if (const io::StoredTensor* table = find_tensor(checkpoint, "token_embd.weight"))
    config["vocab_size"] = table->shape.rows();
  set_windows(fields, checkpoint.header, std::string(architecture.name), config);
  set_scaling(fields, prefix, factors, config);
  set_rotated(fields, prefix, architecture.rotated_key, config);
  set_score_divisor(fields, architecture.deepest, config);
  const std::vector<int64_t> ids = gguf_end_ids(checkpoint.header);
  if (!ids.empty()) config["eos_token_id"] = ids;
  return config;
}

LayerCounts gguf_layer_counts(const GgufArchitecture& architecture, const io::GgufHeader& header) {
  const std::string name(architecture.name);
  LayerCounts counts;
  for (const auto& [key, to] :
       {std::pair{kKvHeads, &counts.kv_heads}, {kMlpWidth, &counts.mlp_widths}}) {
    const std::vector<int64_t> numbers = layer_numbers(header, name, key);
    if (!all_equal(numbers)) to->assign(numbers.begin(), numbers.end());
  }
  return counts;
}

std::string gguf_tensor_name(const GgufArchitecture& architecture, std::string_view name) {
  std::string_view rest = name, layer;
  if (rest.starts_with("blk.")) {
    const size_t dot = rest.find('.', 4);
    if (dot == std::string_view::npos) return std::string(name);
    layer = rest.substr(4, dot - 4);
    rest = rest.substr(dot + 1);
  }
  const size_t dot = rest.rfind('.');
  if (dot == std::string_view::npos) return std::string(name);
  auto found = std::ranges::find(architecture.names, rest.substr(0, dot), &GgufName::name);
  if (found == architecture.names.end()) return std::string(name);
  std::string hub(found->hub_name);
  const size_t number = hub.find("{}");
  if ((number == std::string::npos) != layer.empty()) return std::string(name);
  if (!layer.empty()) hub.replace(number, 2, layer);
  return hub + std::string(rest.substr(dot));
}

}  // namespace sluice
