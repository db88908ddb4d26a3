// Gemma4ForCausalLM (and the language model in Gemma4ForConditionalGeneration):
// layers with a window and layers without have heads of their own sizes and their own angles; v has
// a norm without weight, and may be k; the last layers share keys and values; the small models give
// each layer a part of a row of a second table. Gemma4UnifiedForCausalLM (Gemma 4 12B): the same
// without that table.
#include <algorithm>
#include <cmath>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr LayoutDefaults kGemma4Defaults{.vocab_size = 262144,
                                         .hidden_size = 2304,
                                         .intermediate_size = 9216,
                                         .num_hidden_layers = 30,
                                         .num_attention_heads = 8,
                                         .num_key_value_heads = 4,
                                         .head_dim = 256,
                                         .max_position_embeddings = 131072,
                                         .rms_norm_eps = 1e-6,
                                         .rope_theta = 10000,
                                         .hidden_act = "gelu_pytorch_tanh",
                                         .tie_word_embeddings = true,
                                         .rope_layers = "sliding_attention",
                                         .rope_of_class = true,
                                         .activation_key = "hidden_activation"};

// Defaults that the two classes do not share.
struct Gemma4Class {
  int64_t max_positions = 131072;
  int64_t window = 512;
  int64_t layer_input_width = 256;
};
constexpr Gemma4Class kUnified{.max_positions = 262144, .window = 1024, .layer_input_width = 0};

// Layers with a window, and without, have their angles.
enum : size_t { kWindowRope, kFullRope };

void refuse_others(const JsonFields& c) {
  if (c.string_or("use_bidirectional_attention", "") == "all")
    fail(ErrorKind::refused, "{}: use_bidirectional_attention is all, which is not supported",
         c.where());
}

RopeConfig full_rope(const JsonFields& c, int64_t head_dim, int64_t max_positions) {
  RopeConfig rope = parse_rope(c, {.head_dim = head_dim,
                                   .max_positions = max_positions,
                                   .default_theta = 1000000,
                                   .theta_key = has_rope_fields(c) ? "rope_theta" : nullptr,
                                   .layers = "full_attention"});
  if (c.has("rope_parameters")) return rope;
  rope.kind = RopeKind::proportional;  // as the class has it
  rope.turning = head_dim / 8;
  return rope;
}

// The spec that all layers share, with the sizes of those with a window.
LayerSpec common_layer(const JsonFields& c, const DecoderSpec& spec) {
  LayerSpec layer = spec.kinds.front();
  MixerBranch& mixer = layer.mixers.front();
  MlpBranch& mlp = layer.mlps.front();
  AttentionSpec& attention = mixer.attention();
  attention.qkv.bias = attention.output.bias = read_boolean(c, "attention_bias", false);
  attention.scale = 1;
  auto named = [&](const std::string& name) { return NormSpec{name, spec.norm.params}; };
  attention.q_norm = named(attention.name + ".q_norm");
  attention.k_norm = named(attention.name + ".k_norm");
  attention.v_norm = named(attention.name + ".v_norm");
  attention.v_norm.weight = false;
  mixer.output_norm = named(layer.name + ".post_attention_layernorm");
  mlp.norm = named(layer.name + ".pre_feedforward_layernorm");
  mlp.output_norm = named(layer.name + ".post_feedforward_layernorm");
  layer.scalar = layer.name + ".layer_scalar";
  return layer;
}

// Sizes in which layers of one kind may differ.
struct LayerSizes {
  int64_t head_dim = 0;
  int64_t kv_heads = 0;
  int64_t mlp_width = 0;
  bool operator==(const LayerSizes&) const = default;
};

// The sizes of each layer. Transformers has saved those of layers without a window under keys of
// their own, and since 5.24 under the numbers of the layers.
std::vector<LayerSizes> read_layer_sizes(const JsonFields& c, const LayerSpec& common,
                                         const std::vector<int64_t>& windows) {
  const AttentionSpec& attention = common.mixers.front().attention();
  const LayerSizes with_window{attention.head_dim, attention.kv_heads.units(),
                               common.mlps.front().mlp.width.size};
  LayerSizes full = with_window;
  if (!c.has("per_layer_config") && !c.is_null("per_layer_config")) {
    full.head_dim = read_size(c, "global_head_dim", 512);
    if (read_boolean(c, "attention_k_eq_v", false))
      full.kv_heads = c.integer_or("num_global_key_value_heads", 1, kMaxWidth, full.kv_heads);
  }
  std::vector<LayerSizes> sizes;
  for (int64_t window : windows) sizes.push_back(window > 0 ? with_window : full);
  each_own_config(c, sizes.size(),
                  [&](size_t layer, const JsonFields& own, const std::string& key) {
                    LayerSizes& its = sizes[layer];
                    if (key == "head_dim") {
                      its.head_dim = own.integer("head_dim", 1, kMaxWidth);
                    } else if (key == "num_key_value_heads") {
                      its.kv_heads = own.integer("num_key_value_heads", 1, kMaxWidth);
                    } else if (key == "intermediate_size") {
                      its.mlp_width = own.integer("intermediate_size", 1, 4 * kMaxWidth);
                    } else {
                      return false;
                    }
                    return true;
                  });
  return sizes;
}

void use_sizes(const JsonFields& c, const LayerSizes& sizes, LayerSpec& layer) {
  AttentionSpec& attention = layer.mixers.front().attention();
  const int64_t heads = attention.heads.units(), d = sizes.head_dim;
  if (d % 2 != 0 || heads * d > kMaxWidth || heads % sizes.kv_heads != 0) {
    fail(
        ErrorKind::refused,
        "{}: head_dim or global_head_dim of a layer ({}) must be even, and its num_key_value_heads "
        "({}) divide the {} heads",
        c.where(), d, sizes.kv_heads, heads);
  }
  attention.head_dim = d;
  attention.heads = {.size = heads * d, .unit = d};
  attention.kv_heads = {.size = sizes.kv_heads * d, .unit = d};
  layer.mlps.front().mlp.width.size = sizes.mlp_width;
}

// Changes the spec to that of a layer without a window.
void use_full_attention(const JsonFields& c, AttentionSpec& attention) {
  attention.angles = kFullRope;
  attention.keys_are_values = read_boolean(c, "attention_k_eq_v", false);
  if (attention.keys_are_values) attention.qkv.parts.pop_back();
}

// Lets a layer attend to the keys and values of layer `of`.
void share(const JsonFields& c, size_t of, const LayerSpec& owner, LayerSpec& layer) {
  AttentionSpec& attention = layer.mixers.front().attention();
  share_keys(of, attention);
  attention.kv_heads = owner.mixers.front().attention().kv_heads;
  if (read_boolean(c, "use_double_wide_mlp", false)) layer.mlps.front().mlp.width.size *= 2;
}

void add_layer_inputs(const JsonFields& c, int64_t absent_width, DecoderSpec& spec,
                      LayerSpec& layer) {
  c.refuse_null({"hidden_size_per_layer_input"});
  const int64_t width = c.integer_or("hidden_size_per_layer_input", 0, kMaxWidth, absent_width);
  if (width == 0) return;
  if (read_size(c, "vocab_size_per_layer_input", 262144, kMaxVocab) != spec.vocab_size)
    fail(ErrorKind::refused, "{}: vocab_size_per_layer_input must be vocab_size", c.where());
  spec.layer_inputs = {.table = "model.embed_tokens_per_layer",
                       .projection = "model.per_layer_model_projection",
                       .norm = {"model.per_layer_projection_norm", spec.norm.params},
                       .width = width,
                       .rows = spec.vocab_size,
                       .table_multiplier = std::sqrt(static_cast<float>(width)),
                       .projection_multiplier = 1 / std::sqrt(static_cast<float>(spec.hidden_size)),
                       .multiplier = std::sqrt(0.5F)};
  MlpSpec mlp{.name = layer.name + ".per_layer_input",
              .width = {.size = width},
              .activation = layer.mlps.front().mlp.activation,
              .up = one_linear(layer.name + ".per_layer_input_gate", false),
              .times_layer_input = true,
              .down = one_linear(layer.name + ".per_layer_projection", false)};
  MlpBranch& branch = layer.mlps.emplace_back();
  branch.mlp = std::move(mlp);
  branch.output_norm = {layer.name + ".post_per_layer_input_norm", spec.norm.params};
}

// In what layers differ: a window or none, keys of their own or those of the last such, and sizes.
struct LayerKind {
  bool full = false;
  bool shared = false;
  LayerSizes sizes;
  bool operator==(const LayerKind&) const = default;
};

// Experts beside the layer's MLP, chosen by the residual stream. Each of the two has norms of its
// own, and so has their sum.
void add_experts(const JsonFields& c, int64_t hidden_size, LayerSpec& layer) {
  MlpBranch& dense = layer.mlps.front();
  MlpBranch sparse = dense;
  sparse.input = BranchInput::layer_input;
  ExpertsSpec experts = read_experts(c, {.count = {"num_experts"}, .top_k = "top_k_experts"});
  name_experts(experts, mlp_like(dense.mlp, layer.name, dense.mlp.width.size),
               c.integer("moe_intermediate_size", 1, 4 * kMaxWidth));
  const std::string router = layer.name + ".router";
  experts.router = one_linear(router + ".proj", false);
  experts.choice.normalized = true;
  experts.choice_factors = router + ".per_expert_scale";
  experts.stream_scale = router + ".scale";
  experts.stream_norm = dense.norm.params;
  experts.logit_multiplier = 1 / std::sqrt(static_cast<float>(hidden_size));
  stack_experts(experts, layer.name + ".experts.gate_up_proj", layer.name + ".experts.down_proj",
                true);
  for (const char* stack : {".gate_proj", ".up_proj", ".down_proj"})  // of MLX
    experts.stacks_apart.push_back(layer.name + ".experts" + stack);
  sparse.experts = std::move(experts);
  sparse.sum_norm = dense.output_norm;
  sparse.norm.name = layer.name + ".pre_feedforward_layernorm_2";
  dense.output_norm.name = layer.name + ".post_feedforward_layernorm_1";
  sparse.output_norm.name = layer.name + ".post_feedforward_layernorm_2";
  layer.mlps.push_back(std::move(sparse));
}

void make_kinds(const JsonFields& c, int64_t absent_window, const LayerSpec& common,
                DecoderSpec& spec) {
  constexpr int64_t kFullEach = 6;
  const auto count = std::ssize(spec.layers);
  std::vector<int64_t> windows = read_windows(c, absent_window, count, kFullEach);
  windows.back() = 0;
  const std::vector<LayerSizes> sizes = read_layer_sizes(c, common, windows);
  const int64_t own = count - c.integer_or("num_kv_shared_layers", 0, count - 1, 0);
  const AttentionSpec& attention = common.mixers.front().attention();
  std::optional<size_t> last[2];
  std::vector<LayerKind> kinds;
  spec.kinds.clear();
  for (int64_t l = 0; l < count; ++l) {
    const auto i = static_cast<size_t>(l);
    const LayerKind kind{.full = windows[i] == 0, .shared = l >= own, .sizes = sizes[i]};
    const size_t full = kind.full ? 1 : 0;
    if (!kind.shared) last[full] = i;
    if (!last[full])
      fail(ErrorKind::refused, "{}: layer {} shares keys, and there is none of its kind before it",
           c.where(), l);
    const int64_t head_dim = kind.full ? sizes.back().head_dim : attention.head_dim;
    if (sizes[i].head_dim != head_dim)  // there is one rope for all of a kind
      fail(ErrorKind::refused, "{}: layer {} has another head_dim than others of its kind",
           c.where(), l);
    if (kind.shared) ignore_keys(common, l, spec);
    spec.layers[i] = static_cast<size_t>(std::ranges::find(kinds, kind) - kinds.begin());
    if (spec.layers[i] < kinds.size()) continue;
    kinds.push_back(kind);
    LayerSpec layer = common;
    layer.mixers.front().attention().window = windows[i];
    use_sizes(c, sizes[i], layer);
    if (kind.full) use_full_attention(c, layer.mixers.front().attention());
    if (kind.shared) share(c, *last[full], spec.layer(*last[full]), layer);
    spec.kinds.push_back(std::move(layer));
  }
}

DecoderSpec gemma4_layout(const JsonFields& c, const Gemma4Class& own) {
  refuse_others(c);
  LayoutDefaults defaults = kGemma4Defaults;
  defaults.max_position_embeddings = own.max_positions;
  DecoderSpec spec = common_layout(c, defaults);
  LayerSpec layer = common_layer(c, spec);
  layer.mixers.front().attention().angles = kWindowRope;
  if (read_boolean(c, "enable_moe_block", false)) add_experts(c, spec.hidden_size, layer);
  add_layer_inputs(c, own.layer_input_width, spec, layer);
  make_kinds(c, own.window, layer, spec);
  const int64_t full_head_dim =
      spec.layer(spec.layers.size() - 1).mixers.front().attention().head_dim;
  spec.ropes.push_back(full_rope(c, full_head_dim, spec.max_positions));
  spec.embedding_multiplier = std::sqrt(static_cast<float>(spec.hidden_size));
  spec.logit_soft_cap = read_cap(c, "final_logit_softcapping", 0);
  return spec;
}

DecoderSpec parse_gemma4(const JsonFields& c) { return gemma4_layout(c, {}); }
DecoderSpec parse_gemma4_unified(const JsonFields& c) { return gemma4_layout(c, kUnified); }

}  // namespace

std::vector<Family> gemma4_families() {
  return {{.architecture = "Gemma4ForCausalLM",
           .model_type = "gemma4_text",
           .parse = parse_gemma4,
           .reads_layer_config = true},
          {.architecture = "Gemma4UnifiedForCausalLM",
           .model_type = "gemma4_unified_text",
           .parse = parse_gemma4_unified,
           .reads_layer_config = true}};
}

}  // namespace sluice
