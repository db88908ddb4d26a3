// Dots3NoteForCausalLM (dots3-note, and the language model in Dots3NoteForConditionalGeneration):
// DeepSeek-V3.2's layout with gates of the heads, a norm of the shared key, and in most layers
// windows in the place of an indexer, with sizes and a rope of their own.
#include <algorithm>
#include <cmath>

#include "src/base/error.h"
#include "src/models/config.h"
#include "src/models/expert_layout.h"
#include "src/models/families/deepseek.h"
#include "src/models/layout.h"
#include "src/models/registry.h"

namespace sluice {
namespace {

constexpr int64_t kDots3HeadDim = 256;  // which rope alone uses
constexpr LayoutDefaults kDots3{.vocab_size = 152064,
                                .hidden_size = 5120,
                                .intermediate_size = 13824,
                                .num_hidden_layers = 46,
                                .num_attention_heads = 128,
                                .num_key_value_heads = 128,
                                .head_dim = kDots3HeadDim,
                                .max_position_embeddings = 524288,
                                .rms_norm_eps = 1e-5,
                                .rope_theta = 80000000,
                                .part_key = "partial_rotary_factor"};
constexpr MlaDefaults kDots3Mla{.query_rank = 1024, .may_interleave = false};

enum : size_t { kDots3Indexed, kDots3Full, kDots3Sliding };

// The share of head_dim that is rotated.
double rotated_part(const JsonFields& c) {
  return static_cast<double>(read_rope_dim(c, kDots3Mla)) /
         static_cast<double>(read_size(c, "head_dim", kDots3HeadDim));
}

bool has_rope_of(const JsonFields& c, const char* kind) {
  constexpr const char* kKey = "rope_parameters";
  return c.has(kKey) && c.raw(kKey).contains(kind);
}

// The rope fields of layers without a window, where they are divided by kinds; else null.
const char* dots3_rope_fields(const JsonFields& c) {
  constexpr const char *kOfIndexed = "indexed_attention", *kOfFull = "full_attention";
  const bool indexed = has_rope_of(c, kOfIndexed), full = has_rope_of(c, kOfFull);
  if (indexed && full && c.raw("rope_parameters")[kOfIndexed] != c.raw("rope_parameters")[kOfFull])
    fail(ErrorKind::refused, "{}: rope_parameters of {} and of {} differ, which is not supported",
         c.where(), kOfIndexed, kOfFull);
  if (indexed) return kOfIndexed;
  return full || has_rope_of(c, "sliding_attention") ? kOfFull : nullptr;
}

// The kind of each layer. Published configs call those with an indexer full_attention.
std::vector<size_t> read_dots3_kinds(const JsonFields& c, int64_t layers) {
  std::vector<size_t> kinds =
      read_layer_types(c, layers, {"indexed_attention", "full_attention", "sliding_attention"});
  const size_t full = read_boolean(c, "use_dsa", true) ? kDots3Indexed : kDots3Full;
  const bool slides = read_boolean(c, "use_sliding_window", true);
  const bool is_published = c.has("use_dsa") || !c.has("per_layer_config");
  for (size_t& kind : kinds)
    if (is_published && kind != kDots3Sliding) kind = full;
  for (auto l = std::ssize(kinds); l < layers; ++l)
    kinds.push_back(!slides || l < 2 || l % 4 == 1 ? full : kDots3Sliding);
  return kinds;
}

// The sizes of layers with a window: of all, those of per_layer_config, or keys of their own.
Json sliding_sizes(const JsonFields& c, const std::vector<size_t>& kinds) {
  Json sizes{{"attention_bias", read_boolean(c, "attention_bias", false)}};
  const auto take = [&](const char* key, const char* own, int64_t absent, int64_t absent_own) {
    sizes[key] =
        c.has("per_layer_config") ? read_size(c, key, absent) : read_size(c, own, absent_own);
  };
  take("num_attention_heads", "swa_num_attention_heads", 128, 64);
  take("q_lora_rank", "swa_q_lora_rank", kDots3Mla.query_rank, 1024);
  take("kv_lora_rank", "swa_kv_lora_rank", kDots3Mla.rank, 1024);
  take("qk_nope_head_dim", "swa_qk_nope_head_dim", kDots3Mla.nope_dim, 192);
  take("v_head_dim", "swa_v_head_dim", kDots3Mla.value_dim, 128);
  take("head_dim", "swa_head_dim", kDots3HeadDim, kDots3HeadDim);
  const int64_t rest = sizes["head_dim"].get<int64_t>() - sizes["qk_nope_head_dim"].get<int64_t>();
  take("qk_rope_head_dim", "swa_qk_rope_head_dim", kDots3Mla.rope_dim, std::max<int64_t>(1, rest));
  const Json common = sizes;
  Json own = Json::object();
  each_own_config(c, kinds.size(), [&](size_t layer, const JsonFields& of, const std::string& key) {
    if (key == "num_key_value_heads") return true;
    if (kinds[layer] != kDots3Sliding || !common.contains(key)) return false;
    const int64_t size = of.integer(key.c_str(), 1, kMaxWidth);
    if (own.contains(key) && own[key] != size) return false;
    own[key] = sizes[key] = size;
    return true;
  });
  return sizes;
}

// Parts that latent attention of DeepSeek has not.
void use_dots3_parts(const JsonFields& c, const DecoderSpec& spec, MlaSpec& mla) {
  const NormParams& norm = spec.norm.params;
  mla.query_norm.params = mla.kv_norm.params = norm;
  if (read_boolean(c, "apply_mla_qkv_lora_rescale", true))
    scale_low_ranks(c, spec.hidden_size, mla);
  mla.shared_key_norm = {mla.name + ".k_rope_only_layernorm", norm};
  mla.gate = one_linear(mla.name + ".g_proj", false);
  mla.scale = 1 / std::sqrt(static_cast<float>(mla.query_dim()));
}

// The three kinds of layers of one.
void use_dots3_kinds(const JsonFields& c, const std::vector<size_t>& kinds, DecoderSpec& spec) {
  const LayerSpec common = spec.kinds.front();
  spec.kinds.assign(kDots3Sliding + 1, common);
  for (const size_t kind : {kDots3Indexed, kDots3Full})
    use_mla(c, kDots3Mla, spec.ropes.front(), spec.kinds[kind]);
  const Json sizes = sliding_sizes(c, kinds);
  const JsonFields own(sizes, c.where());
  LayerSpec& sliding = spec.kinds[kDots3Sliding];
  AttentionSpec& attention = sliding.mixers.front().attention();
  attention.heads.size = sizes["num_attention_heads"].get<int64_t>() * attention.heads.unit;
  spec.ropes.push_back(
      parse_rope(c, {.head_dim = read_size(own, "head_dim", kDots3HeadDim),
                     .max_positions = spec.max_positions,
                     .default_theta = 50000,
                     .theta_key = "swa_rope_theta",
                     .part_key = kDots3.part_key,
                     .default_part = rotated_part(own),
                     .layers = dots3_rope_fields(c) != nullptr ? "sliding_attention" : nullptr}));
  use_mla(own, kDots3Mla, spec.ropes.back(), sliding);
  for (LayerSpec& layer : spec.kinds) {
    auto& mla = std::get<MlaSpec>(layer.mixers.front().mixer);
    use_dots3_parts(c, spec, mla);
  }
  use_indexer(c, {.rope = RopePairing::neighbours}, false, spec.kinds[kDots3Indexed]);
  auto& mla = std::get<MlaSpec>(sliding.mixers.front().mixer);
  mla.angles = mla.query_angles = 1;
  const char* window = present(c, "sliding_window", "sliding_window_size");
  mla.window = c.integer_or(window, 1, kMaxPositions, 512);
  spec.layers = kinds;
}

// The layers with experts, where a list says it of each.
std::vector<bool> read_experts_layers(const JsonFields& c, int64_t layers) {
  constexpr const char* kKey = "moe_layer_freq";
  if (c.has("mlp_layer_types") || !c.has(kKey) || !c.raw(kKey).is_array())
    return read_spaced_experts(c, layers, 1);
  const auto each = read_numbers(c, kKey);
  std::vector<bool> sparse = read_mlp_layer_types(c, layers, 1);
  if (std::ssize(*each) < layers)
    fail(ErrorKind::refused, "{}: {} must have a number for each of {} layers", c.where(), kKey,
         layers);
  for (size_t l = 0; l < sparse.size(); ++l) sparse[l] = sparse[l] && (*each)[l] != 0;
  return sparse;
}

DecoderSpec parse_dots3_note(const JsonFields& c) {
  LayoutDefaults defaults = kDots3;
  defaults.rope_layers = dots3_rope_fields(c);
  defaults.part = rotated_part(c);
  DecoderSpec spec = common_layout(c, defaults);
  const auto layers = std::ssize(spec.layers);
  const MlpSpec mlp = spec.kinds.front().mlps.front().mlp;
  use_dots3_kinds(c, read_dots3_kinds(c, layers), spec);
  ExpertsSpec experts = deepseek_experts(c, {.width = 1536}, mlp);
  read_grouped_choice(c, {}, experts);
  const char* shared =
      present(c, "shared_experts_intermediate_size", "moe_shared_expert_intermediate_size");
  if (experts.shared)
    experts.shared->width.size =
        read_size(c, "n_shared_experts", 1, kMostExperts) * read_size(c, shared, 1536, kMaxWidth);
  use_experts(spec, experts, read_experts_layers(c, layers));
  spec.ignorable.push_back(name_in_layer("model.layers.{}.*", layers));
  return spec;
}

}  // namespace

std::vector<Family> dots3_note_families() {
  return {{"Dots3NoteForCausalLM",
           "dots3_note_text",
           parse_dots3_note,
           {"model.mtp.*", "vision_encoder.*", "audio_encoder.*", "audio_adapter.*"},
           {"dots3_note"},
           true}};
}

}  // namespace sluice
