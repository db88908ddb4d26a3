// DeepseekV2ForCausalLM and DeepseekV3ForCausalLM (V3, R1, Kimi K2): latent
// attention, and from some layer on experts beside a shared one.
// DeepseekV32ForCausalLM (V3.2): the same, attending to what an indexer chooses.
// YoutuForCausalLM (Youtu-LLM): the same without experts.
// AXK1ForCausalLM (A.X K1): DeepSeek-V3's, with a norm of what experts compute.
// DeepseekForCausalLM (DeepSeekMoE): V2's experts, and attention as Llama's.
// PLMForCausalLM (PLM): latent attention and a plain MLP.
#include "src/models/families/deepseek.h"

#include <algorithm>
#include <cmath>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/hub_shapes.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kDeepseekV2{.vocab_size = 102400,
                                     .hidden_size = 4096,
                                     .intermediate_size = 11008,
                                     .num_hidden_layers = 32,
                                     .num_attention_heads = 32,
                                     .max_position_embeddings = 2048,
                                     .rms_norm_eps = 1e-6,
                                     .rope_theta = 10000};
constexpr LayoutDefaults kDeepseekV3{.vocab_size = 129280,
                                     .hidden_size = 7168,
                                     .intermediate_size = 18432,
                                     .num_hidden_layers = 61,
                                     .num_attention_heads = 128,
                                     .num_key_value_heads = 128,
                                     .max_position_embeddings = 4096,
                                     .rms_norm_eps = 1e-6,
                                     .rope_theta = 10000};

constexpr const char* kOcr = "deepseek_ocr2_text";

DecoderSpec latent_layout(const JsonFields& c, const LayoutDefaults& defaults,
                          const MlaDefaults& mla) {
  DecoderSpec spec = common_layout(c, latent_defaults(c, mla, defaults));
  use_mla(c, mla, spec.ropes.front(), spec.kinds.front());
  return spec;
}

// Softmax scores. Groups count by their largest one.
void read_v2_choice(const JsonFields& c, ExpertsSpec& experts) {
  const std::string method = c.string_or("topk_method", "greedy");
  RouterParams& choice = experts.choice;
  choice = {.top_k = choice.top_k, .factor = read_factor(c, "routed_scaling_factor", 1)};
  if (method == "greedy") return;
  if (method != "group_limited_greedy")
    fail(ErrorKind::refused, "{}: topk_method is {}, which is not supported", c.where(),
         io::printable(method));
  ExpertsSpec grouped = experts;
  read_grouped_choice(c, {}, grouped);
  choice.groups = grouped.choice.groups;
  choice.top_k_groups = grouped.choice.top_k_groups;
  choice.groups_by_largest = true;
}

DecoderSpec parse_deepseek_v2(const JsonFields& c) {
  // Models of OCR, and the small ones of vision, have attention as Llama's.
  const bool latent = read_boolean(c, "use_mla", c.string_or("model_type", "") != kOcr);
  DecoderSpec spec = latent ? latent_layout(c, kDeepseekV2, {.may_interleave = false})
                            : common_layout(c, kDeepseekV2);
  MlpSpec& mlp = spec.kinds.front().mlps.front().mlp;
  mlp.up.bias = mlp.down.bias = read_boolean(c, "mlp_bias", false);
  ExpertsSpec experts =
      deepseek_experts(c, {.count = 64, .top_k = 6, .width = 1407, .shared = 2}, mlp);
  read_v2_choice(c, experts);
  experts.choice_bias.clear();
  use_experts(spec, experts, read_mlp_layer_types(c, std::ssize(spec.layers), 0));
  return spec;
}

DecoderSpec parse_deepseek_v1(const JsonFields& c) {
  DecoderSpec spec = common_layout(c, kDeepseekV2);
  AttentionSpec& attention = spec.kinds.front().mixers.front().attention();
  attention.qkv.bias = attention.output.bias = read_boolean(c, "attention_bias", false);
  const int64_t layers = std::ssize(spec.layers);
  if (c.is_null("n_routed_experts") || !c.has("n_routed_experts")) return spec;
  ExpertsSpec experts =
      deepseek_experts(c, {.width = 1407, .shared = 0}, spec.kinds.front().mlps.front().mlp);
  const std::string scores = c.string_or("scoring_func", "softmax");
  if (scores != "softmax")
    fail(ErrorKind::refused, "{}: scoring_func is {}, which is not supported", c.where(),
         io::printable(scores));
  // The one score of a single expert stays as it is.
  experts.choice.normalized = experts.choice.top_k > 1 && read_boolean(c, "norm_topk_prob", false);
  experts.choice_bias.clear();
  use_experts(spec, experts, read_spaced_experts(c, layers, 0));
  return spec;
}

DecoderSpec parse_deepseek_v3(const JsonFields& c) {
  DecoderSpec spec = latent_layout(c, kDeepseekV3, {});
  ExpertsSpec experts = deepseek_experts(c, {}, spec.kinds.front().mlps.front().mlp);
  read_grouped_choice(c, {.groups = 8, .top_k_groups = 4, .factor = 2.5}, experts);
  const int64_t dense = c.integer_or("first_k_dense_replace", 0, kMaxLayers, 3);
  use_experts(spec, experts, sparse_from(dense, std::ssize(spec.layers)));
  ignore_more_layers(c, spec);
  return spec;
}

DecoderSpec parse_deepseek_v32(const JsonFields& c) {
  LayoutDefaults defaults = kDeepseekV3;
  defaults.max_position_embeddings = 163840;
  DecoderSpec spec = latent_layout(c, defaults, {.may_interleave = false});
  use_indexer(c, {}, false, spec.kinds.front());
  ExpertsSpec experts = deepseek_experts(c, {}, spec.kinds.front().mlps.front().mlp);
  read_grouped_choice(c, {.groups = 8, .top_k_groups = 4, .factor = 2.5}, experts);
  use_experts(spec, experts, read_mlp_layer_types(c, std::ssize(spec.layers), 3));
  ignore_more_layers(c, spec);
  return spec;
}

DecoderSpec parse_youtu(const JsonFields& c) {
  LayoutDefaults defaults = kDeepseekV3;
  defaults.vocab_size = 128256;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 6144;
  defaults.num_hidden_layers = 32;
  defaults.num_attention_heads = defaults.num_key_value_heads.emplace(16);
  defaults.max_position_embeddings = 131072;
  defaults.tie_word_embeddings = true;
  return latent_layout(c, defaults, {});
}

DecoderSpec parse_plm(const JsonFields& c) {
  LayoutDefaults defaults = kDeepseekV2;
  defaults.vocab_size = 151936;
  defaults.hidden_size = 2048;
  defaults.intermediate_size = 8192;
  defaults.num_attention_heads = 16;
  defaults.hidden_act = "relu2";
  defaults.tie_word_embeddings = true;
  DecoderSpec spec = latent_layout(c, defaults, {.query_rank = 0, .may_interleave = false});
  use_plain_mlp(spec.kinds.front().mlps.front().mlp, "up_proj", "down_proj");
  return spec;
}

DecoderSpec parse_axk1(const JsonFields& c) {
  LayoutDefaults defaults = kDeepseekV3;
  defaults.vocab_size = 163840;
  defaults.num_attention_heads = defaults.num_key_value_heads.emplace(64);
  defaults.max_position_embeddings = 32768;
  DecoderSpec spec = latent_layout(c, defaults, {});
  ExpertsSpec experts = deepseek_experts(c, {.count = 192}, spec.kinds.front().mlps.front().mlp);
  read_grouped_choice(c, {.groups = 8, .top_k_groups = 4, .factor = 2.5}, experts);
  use_experts(spec, experts, read_spaced_experts(c, std::ssize(spec.layers), 1));
  for (LayerSpec& layer : spec.kinds) {
    MlpBranch& mlp = layer.mlps.front();
    if (mlp.experts) mlp.output_norm = {layer.name + ".post_mlp_layernorm", spec.norm.params};
  }
  ignore_more_layers(c, spec);
  return spec;
}

}  // namespace

int64_t read_rope_dim(const JsonFields& c, const MlaDefaults& defaults) {
  return read_size(c, "qk_rope_head_dim", defaults.rope_dim);
}

int64_t read_query_dim(const JsonFields& c, const MlaDefaults& defaults) {
  return read_rope_dim(c, defaults) + read_size(c, "qk_nope_head_dim", defaults.nope_dim);
}

LayoutDefaults latent_defaults(const JsonFields& c, const MlaDefaults& mla,
                               LayoutDefaults defaults) {
  defaults.head_dim = read_rope_dim(c, mla);
  defaults.fixed_head_dim = true;
  return defaults;
}

void use_mla(const JsonFields& c, const MlaDefaults& defaults, const RopeConfig& rope,
             LayerSpec& layer) {
  const std::string name = layer.mixers.front().attention().name;
  const bool bias = read_boolean(c, "attention_bias", false);
  const NormParams norm{.eps = 1e-6F};  // whatever rms_norm_eps says
  // Rows of each head: keys, then values.
  const std::string kv_up = name + ".kv_b_proj";
  const int64_t keys = read_size(c, "qk_nope_head_dim", defaults.nope_dim);
  const int64_t values = c.integer_or("v_head_dim", 1, kMaxWidth, defaults.value_dim);
  MlaSpec mla{.name = name,
              .heads = layer.mixers.front().attention().heads.units(),
              .nope_dim = keys,
              .rope_dim = rope.dim,
              .value_dim = values,
              .rank = read_size(c, "kv_lora_rank", defaults.rank),
              .kv_down = one_linear(name + ".kv_a_proj_with_mqa", bias),
              .kv_norm = {name + ".kv_a_layernorm", norm},
              .keys = {kv_up, {.group = keys, .stride = keys + values}},
              .values = {kv_up, {.first = keys, .group = values, .stride = keys + values}},
              .output = one_linear(name + ".o_proj", bias)};
  if (!c.is_null("q_lora_rank"))
    mla.query_rank = c.integer_or("q_lora_rank", 0, kMaxWidth, defaults.query_rank);
  mla.query = one_linear(name + (mla.query_rank > 0 ? ".q_b_proj" : ".q_proj"), false);
  if (mla.query_rank > 0) {
    mla.query_down = one_linear(name + ".q_a_proj", bias);
    mla.query_norm = {name + ".q_a_layernorm", norm};
  }
  const int64_t widest = std::max({mla.query_dim(), mla.value_dim, mla.key_dim()});
  if (mla.heads * widest > 64 * kMaxWidth || mla.rank % 2 != 0 || mla.rope_dim % 2 != 0)
    fail(ErrorKind::refused,
         "{}: {} heads of {} elements, or kv_lora_rank {} that is not even, "
         "are not supported",
         c.where(), mla.heads, widest, mla.rank);
  const double all_dim = rope_number(c, "mscale_all_dim", 0);
  const double m =
      rope.kind == RopeKind::plain || all_dim == 0 ? 1 : yarn_mscale(rope.factor, all_dim);
  mla.scale = static_cast<float>(m * m / std::sqrt(static_cast<double>(mla.query_dim())));
  const bool interleaved = !defaults.may_interleave || read_flag(c, "rope_interleave", true);
  mla.rope = interleaved ? RopePairing::neighbours : RopePairing::halves;
  layer.mixers.front().mixer = std::move(mla);
}

void scale_low_ranks(const JsonFields& c, int64_t hidden_size, MlaSpec& mla) {
  if (mla.query_rank == 0) fail(ErrorKind::refused, "{}: q_lora_rank is null", c.where());
  const auto multiplier = [&](int64_t rank) {
    return std::sqrt(static_cast<float>(hidden_size) / static_cast<float>(rank));
  };
  mla.query_multiplier = multiplier(mla.query_rank);
  mla.latent_multiplier = multiplier(mla.rank);
}

void check_indexer(const JsonFields& c, int64_t heads, int64_t head_dim, int64_t rope_dim) {
  if (head_dim % 2 != 0 || head_dim < rope_dim || heads * head_dim > 64 * kMaxWidth)
    fail(ErrorKind::refused,
         "{}: {} heads of {} elements (index_head_dim), which is odd, absurd, or less than the {} "
         "that are rotated",
         c.where(), heads, head_dim, rope_dim);
}

void use_indexer(const JsonFields& c, const IndexerDefaults& defaults, bool shared,
                 LayerSpec& layer) {
  auto& mla = std::get<MlaSpec>(layer.mixers.front().mixer);
  mla.chosen = read_size(c, "index_topk", 2048, kMostChosen);
  if (shared) return;
  const std::string name = mla.name + ".indexer";
  IndexerSpec indexer{.heads = read_size(c, "index_n_heads", defaults.heads),
                      .head_dim = read_size(c, "index_head_dim", 128),
                      .query = one_linear(name + ".wq_b", false),
                      .key = one_linear(name + ".wk", false),
                      .key_norm = {name + ".k_norm", {.eps = 1e-6F, .kind = NormKind::layer}, true},
                      .weights = one_linear(name + ".weights_proj", false),
                      .rope = defaults.rope};
  if (mla.query_rank == 0)
    fail(ErrorKind::refused, "{}: q_lora_rank is null, without which there is no indexer",
         c.where());
  check_indexer(c, indexer.heads, indexer.head_dim, mla.rope_dim);
  mla.indexer = std::move(indexer);
}

std::vector<bool> read_mlp_layer_types(const JsonFields& c, int64_t layers, int64_t absent_dense) {
  std::vector<bool> sparse =
      sparse_from(c.integer_or("first_k_dense_replace", 0, kMaxLayers, absent_dense), layers);
  const std::vector<size_t> kinds =
      read_layer_types(c, layers, {"dense", "sparse"}, "mlp_layer_types");
  for (size_t l = 0; l < kinds.size(); ++l) sparse[l] = kinds[l] == 1;
  return sparse;
}

std::vector<bool> read_spaced_experts(const JsonFields& c, int64_t layers, int64_t absent_dense) {
  std::vector<bool> sparse = read_mlp_layer_types(c, layers, absent_dense);
  const int64_t each = read_size(c, "moe_layer_freq", 1, kMaxLayers);
  for (int64_t l = 0; l < layers && !c.has("mlp_layer_types"); ++l)
    sparse[static_cast<size_t>(l)] = sparse[static_cast<size_t>(l)] && l % each == 0;
  return sparse;
}

ExpertsSpec deepseek_experts(const JsonFields& c, const DeepseekExperts& defaults,
                             const MlpSpec& mlp) {
  ExpertsSpec experts = read_experts(c, {.count = {"n_routed_experts", "num_local_experts"},
                                         .absent_count = defaults.count,
                                         .absent_top_k = defaults.top_k});
  const int64_t width = read_size(c, "moe_intermediate_size", defaults.width, 4 * kMaxWidth);
  name_experts(experts, mlp, width);
  experts.choice_bias = mlp.name + ".gate.e_score_correction_bias";
  experts.stacked_gate_up = mlp.name + ".experts.gate_up_proj";
  experts.stacked_down = mlp.name + ".experts.down_proj";
  if (c.is_null("n_shared_experts")) return experts;
  const int64_t shared = c.integer_or("n_shared_experts", 0, kMostExperts, defaults.shared);
  if (shared > 0) experts.shared = mlp_like(mlp, mlp.name + ".shared_experts", width * shared);
  return experts;
}

void ignore_more_layers(const JsonFields& c, DecoderSpec& spec) {
  const char* key = present(c, "num_nextn_predict_layers", "num_mtp_layers");
  const int64_t more = c.integer_or(key, 0, kMaxLayers, 1);
  for (int64_t l = 0; l < more; ++l)
    spec.ignorable.push_back(name_in_layer("model.layers.{}.*", std::ssize(spec.layers) + l));
}

// The class has latent attention alone.
void refuse_deepseek_ocr(const Model& model) {
  bool is_latent = false;
  each<MlaSpec>(model.spec, [&](const MlaSpec&) { is_latent = true; });
  if (!is_latent)
    fail(ErrorKind::refused,
         "{}: is the language model of a DeepSeek-OCR, which transformers does not have by itself; "
         "give the checkpoint that it was made from",
         model.files.config_name);
}

std::vector<Family> deepseek_families() {
  return {{"DeepseekV2ForCausalLM", "deepseek_v2", parse_deepseek_v2, {}, {kOcr}},
          {"DeepseekV3ForCausalLM", "deepseek_v3", parse_deepseek_v3, {}, {"kimi_k2"}},
          {"DeepseekV32ForCausalLM", "deepseek_v32", parse_deepseek_v32, {}},
          {"YoutuForCausalLM", "youtu", parse_youtu, {}},
          {"AXK1ForCausalLM", "axk1", parse_axk1, {}},
          {"DeepseekForCausalLM", "deepseek", parse_deepseek_v1, {}},
          {"PLMForCausalLM", "plm", parse_plm, {}}};
}

}  // namespace sluice
