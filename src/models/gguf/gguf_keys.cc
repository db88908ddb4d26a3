// config.json as keys of GGUF's metadata.
#include <algorithm>
#include <array>
#include <cmath>

#include "src/base/error.h"
#include "src/models/gguf/gguf_export.h"

namespace sluice {
namespace {

constexpr std::string_view kWindow = "attention.sliding_window",
                           kWindowKeys = "attention.key_length_swa",
                           kOriginalLength = "rope.scaling.original_context_length",
                           kInterval = "full_attention_interval",
                           kLogMultiplier = "rope.scaling.yarn_log_multiplier";

// Ends of keys whose values are floats, though config.json may have them as integers.
constexpr std::array<std::string_view, 7> kFloatEnds{
    "epsilon", "freq_base", "freq_base_swa", "scale", "softcapping", "clamp_kqv", "factor"};

const AttentionSpec* attention_of(const LayerSpec& layer) {
  for (const MixerBranch& branch : layer.mixers)
    if (const auto* attention = std::get_if<AttentionSpec>(&branch.mixer)) return attention;
  return nullptr;
}

const MlaSpec* latent_of(const LayerSpec& layer) {
  for (const MixerBranch& branch : layer.mixers)
    if (const auto* latent = std::get_if<MlaSpec>(&branch.mixer)) return latent;
  return nullptr;
}

// The width of a layer's MLP, or of its experts.
int64_t feed_forward_width(const LayerSpec& layer) {
  if (layer.mlps.empty()) return 0;
  const MlpBranch& mlp = layer.mlps.front();
  return mlp.experts ? mlp.experts->expert.width.size : mlp.mlp.width.size;
}

class Keys {
 public:
  Keys(const GgufArchitecture& architecture, const Model& model, io::GgufMetadata& metadata)
      : architecture_(architecture),
        config_(model.files.config),
        spec_(model.spec),
        metadata_(metadata) {
    if (architecture.undo != nullptr) architecture.undo(spec_, config_);
  }

  std::vector<GgufVector> add(bool names_windows);

 private:
  Json config_value(std::string_view key, const Json& in) const;
  std::optional<Json> value_of(std::string_view key) const;
  std::optional<Json> value_of_attention(std::string_view key) const;
  std::optional<Json> value_of_latent(std::string_view key, const MlaSpec& latent) const;
  void put(std::string_view key, const Json& value);
  void put_key(const GgufKey& row);
  void put_list(std::string_view key, const Json& values);
  void put_lists();
  bool has_row(std::string_view key) const {
    return std::ranges::find(architecture_.keys, key, &GgufKey::key) != architecture_.keys.end();
  }
  void put_sizes();
  void put_windows();
  void put_yarn(const RopeConfig& rope);
  std::vector<GgufVector> put_scaling();
  std::string full(std::string_view key) const {
    return fmt::format("{}.{}", architecture_.name, key);
  }
  // The first layer's attention with a window, or without one.
  const AttentionSpec* attention(bool windowed) const;
  // That which rotates, rather without a window.
  const AttentionSpec* rotating() const;
  // The first layer's latent attention.
  const MlaSpec* latent() const;
  // The one of the layers that attend.
  const RopeConfig* rope() const;
  const ExpertsSpec* experts() const;

  const GgufArchitecture& architecture_;
  Json config_;
  const DecoderSpec& spec_;
  io::GgufMetadata& metadata_;
  Json values_ = Json::object();  // that are written
};

const AttentionSpec* Keys::attention(bool windowed) const {
  for (const size_t kind : spec_.layers) {
    const AttentionSpec* found = attention_of(spec_.kinds[kind]);
    if (found != nullptr && (found->window > 0) == windowed) return found;
  }
  return nullptr;
}

const AttentionSpec* Keys::rotating() const {
  for (const bool windowed : {false, true}) {
    const AttentionSpec* found = attention(windowed);
    if (found != nullptr && found->rope) return found;
  }
  return nullptr;
}

const MlaSpec* Keys::latent() const {
  for (const size_t kind : spec_.layers)
    if (const MlaSpec* found = latent_of(spec_.kinds[kind])) return found;
  return nullptr;
}

const RopeConfig* Keys::rope() const {
  if (const AttentionSpec* of = rotating()) return &spec_.ropes[of->angles];
  const MlaSpec* of = latent();
  return of != nullptr && of->rope ? &spec_.ropes[of->angles] : nullptr;
}

const ExpertsSpec* Keys::experts() const {
  for (const size_t kind : spec_.layers)
    for (const MlpBranch& mlp : spec_.kinds[kind].mlps)
      if (mlp.experts) return &*mlp.experts;
  return nullptr;
}

// A value of config.json; null: there is none.
Json Keys::config_value(std::string_view key, const Json& in) const {
  const size_t dot = key.find('.');
  const auto found = in.find(std::string(key.substr(0, dot)));
  if (found == in.end()) return {};
  if (dot == std::string_view::npos) return *found;
  return found->is_object() ? config_value(key.substr(dot + 1), *found) : Json();
}

// All heads are said to have one key where keys and values have tensors of their own: the latent
// vector and what is rotated of it.
std::optional<Json> Keys::value_of_latent(std::string_view key, const MlaSpec& latent) const {
  const bool parts = architecture_.facts.latent_parts;
  if (key == "attention.head_count") return latent.heads;
  if (key == "attention.head_count_kv") return parts ? 1 : latent.heads;
  if (key == "attention.key_length") return parts ? latent.key_dim() : latent.query_dim();
  if (key == "attention.value_length") return parts ? latent.rank : latent.value_dim;
  if (key == "attention.key_length_mla") return parts ? Json(latent.query_dim()) : Json();
  if (key == "attention.value_length_mla") return parts ? Json(latent.value_dim) : Json();
  if (key == "rope.dimension_count") return latent.rope_dim;
  if (key == kGgufFrequencyBase) return rope() != nullptr ? Json(rope()->theta) : Json();
  return std::nullopt;
}

// Values that follow from what layers compute, whatever config.json calls them.
std::optional<Json> Keys::value_of_attention(std::string_view key) const {
  const AttentionSpec* windowed = attention(true);
  const AttentionSpec* whole = attention(false);
  const AttentionSpec* any = whole != nullptr ? whole : windowed;
  if (any == nullptr) return latent() != nullptr ? value_of_latent(key, *latent()) : std::nullopt;
  if (key == "attention.head_count") return any->heads.units();
  if (key == "attention.head_count_kv") return any->kv_heads.units();
  if (key == "attention.key_length") return any->head_dim;
  if (key == "attention.value_length") return any->of_value();
  if (key == kWindow) return windowed != nullptr ? Json(windowed->window) : Json();
  if (key == kWindowKeys) return windowed != nullptr ? Json(windowed->head_dim) : Json();
  if (key == "attention.value_length_swa")
    return windowed != nullptr ? Json(windowed->of_value()) : Json();
  const auto rope = [&](const AttentionSpec* of, auto member) {
    return of != nullptr && of->rope ? Json(spec_.ropes[of->angles].*member) : Json();
  };
  if (key == kGgufFrequencyBase) return rope(rotating(), &RopeConfig::theta);
  if (key == "rope.freq_base_swa") return rope(windowed, &RopeConfig::theta);
  if (key == "rope.dimension_count") return rope(rotating(), &RopeConfig::dim);
  if (key == "rope.dimension_count_swa") return rope(windowed, &RopeConfig::dim);
  constexpr float kSlopes = 8;  // the largest bias of ALiBi's own slopes
  if (key == "attention.max_alibi_bias")
    return any->alibi > 0 ? Json(kSlopes * any->alibi) : Json();
  return std::nullopt;
}

// The layers of a period whose last one attends; null: none does.
Json attending_interval(const DecoderSpec& spec) {
  for (size_t l = 0; l < spec.layers.size(); ++l)
    if (attention_of(spec.layer(l)) != nullptr) return l + 1;
  return {};
}

// Layers that attend to the keys and values of others.
int64_t sharing_layers(const DecoderSpec& spec) {
  return std::ranges::count_if(spec.layers, [&](size_t kind) {
    const AttentionSpec* attention = attention_of(spec.kinds[kind]);
    return attention != nullptr && attention->shared_with.has_value();
  });
}

std::optional<Json> Keys::value_of(std::string_view key) const {
  constexpr int64_t kWithoutLimit = 1 << 20;
  if (key == "context_length")
    return spec_.max_positions > INT32_MAX ? kWithoutLimit : spec_.max_positions;
  if (key == "embedding_length") return spec_.hidden_size;
  if (key == "block_count") return spec_.layers.size();
  if (key == "vocab_size") return std::max(spec_.vocab_size, spec_.table_rows);
  if (key == "attention.layer_norm_rms_epsilon" || key == "attention.layer_norm_epsilon")
    return spec_.norm.params.eps;
  if (key == "embedding_length_per_layer_input")
    return spec_.layer_inputs ? spec_.layer_inputs->width : 0;
  if (key == "attention.shared_kv_layers") return sharing_layers(spec_);
  if (key == kInterval) return attending_interval(spec_);
  const ExpertsSpec* routed = experts();
  if (routed != nullptr && key == "expert_count") return routed->count;
  if (routed != nullptr && key == "expert_used_count") return routed->choice.top_k;
  if (routed != nullptr && key == "expert_feed_forward_length") return routed->expert.width.size;
  return value_of_attention(key);
}

void Keys::put(std::string_view key, const Json& value) {
  if (value.is_null() || values_.contains(key)) return;
  values_[std::string(key)] = value;
  const bool is_float =
      std::ranges::any_of(kFloatEnds, [&](std::string_view end) { return key.ends_with(end); });
  if (value.is_boolean()) {
    metadata_.add_boolean(full(key), value.get<bool>());
  } else if (value.is_number_float() || (value.is_number() && is_float)) {
    metadata_.add_number(full(key), value.get<float>());
  } else if (value.is_number_integer() && value.get<int64_t>() >= 0) {
    if (value.get<uint64_t>() > UINT32_MAX)
      fail(ErrorKind::refused, "config.json: {} would be {}, which GGUF cannot have", full(key),
           value.get<uint64_t>());
    metadata_.add_integer(full(key), value.get<uint32_t>());
  } else if (value.is_string()) {
    metadata_.add_string(full(key), value.get<std::string>());
  }
}

void Keys::put_key(const GgufKey& row) {
  // Both epsilons may be in a row; a model has that of its norms, unless both are one.
  const bool is_rms = spec_.norm.params.kind == NormKind::rms;
  if (row.key == (is_rms ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon") &&
      std::ranges::any_of(architecture_.keys, [&](const GgufKey& k) {
        return k.key.ends_with("epsilon") && k.config_key != row.config_key;
      }))
    return;
  const std::optional<Json> known = value_of(row.key);
  put(row.key, known ? *known : config_value(row.config_key, config_));
}

void Keys::put_list(std::string_view key, const Json& values) {
  if (!values.is_array() || values.empty() || values_.contains(key)) return;
  values_[std::string(key)] = values;
  if (std::ranges::all_of(values, [](const Json& v) { return v.is_number_integer(); })) {
    metadata_.add_integers(full(key), values.get<std::vector<int32_t>>());
  } else if (std::ranges::all_of(values, [](const Json& v) { return v.is_number(); })) {
    metadata_.add_numbers(full(key), values.get<std::vector<float>>());
  } else if (std::ranges::all_of(values, [](const Json& v) { return v.is_boolean(); })) {
    metadata_.add_booleans(full(key), values.get<std::vector<bool>>());
  }
}

// Values of each layer.
void Keys::put_lists() {
  Json kv_heads = Json::array(), widths = Json::array(), recurrent = Json::array();
  for (const size_t kind : spec_.layers) {
    const LayerSpec& layer = spec_.kinds[kind];
    const AttentionSpec* attention = attention_of(layer);
    const int64_t of_latent = latent_of(layer) != nullptr ? 1 : 0;
    kv_heads.push_back(attention != nullptr ? attention->kv_heads.units() : of_latent);
    widths.push_back(layer.mixers.empty() || architecture_.layer_config ? feed_forward_width(layer)
                                                                        : 0);
    recurrent.push_back(attention == nullptr);
  }
  const auto differ = [](const Json& values) {
    return std::ranges::any_of(values, [&](const Json& v) { return v != values.front(); });
  };
  if (architecture_.layer_config && differ(kv_heads)) put_list("attention.head_count_kv", kv_heads);
  if (architecture_.layer_config && differ(widths)) put_list("feed_forward_length", widths);
  if (has_row(kInterval)) put_list("attention.recurrent_layers", recurrent);
  if (architecture_.layer_types) {
    put_list("attention.head_count_kv", kv_heads);
    if (!architecture_.layer_types->mlp.empty()) put_list("feed_forward_length", widths);
  }
  for (const GgufKey& row : architecture_.lists)
    put_list(row.key, config_value(row.config_key, config_));
  for (const GgufFlags& row : architecture_.flags) {
    Json flags = Json::array();
    for (const Json& name : config_value(row.config_key, config_)) flags.push_back(name == row.set);
    put_list(row.key, flags);
  }
}

// Writes what no row has, as readers have it from other keys, or do not need it.
void Keys::put_sizes() {
  for (const std::string_view key :
       {"context_length", "embedding_length", "block_count", "attention.head_count",
        "attention.value_length", "attention.key_length_mla", "attention.value_length_mla",
        "attention.max_alibi_bias", "rope.dimension_count", "vocab_size"})
    if (const std::optional<Json> value = value_of(key)) put(key, *value);
  if (has_row(kWindowKeys))
    for (const char* key : {"attention.value_length_swa", "rope.dimension_count_swa"})
      if (const std::optional<Json> value = value_of(key)) put(key, *value);
  // Models without attention, or without MLPs, have none.
  put("attention.head_count", 0);
  const bool is_rms = spec_.norm.params.kind == NormKind::rms;
  put(is_rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
      spec_.norm.params.eps);
  each<MlpSpec>(spec_, [&](const MlpSpec& mlp) { put("feed_forward_length", mlp.width.size); });
  put("feed_forward_length", 0);
  if (architecture_.scores != GgufScores::none && architecture_.scores != GgufScores::softmax &&
      experts() != nullptr) {
    put("expert_gating_func", static_cast<int64_t>(architecture_.scores));
    put("expert_weights_norm", experts()->choice.normalized);
    put("expert_weights_scale", experts()->choice.factor);
  }
  if (const MlaSpec* of = latent())
    for (const char* key : {"attention.head_count_kv", "attention.key_length"})
      if (const auto value = value_of_latent(key, *of)) put(key, *value);
  for (const GgufQuotient& row : architecture_.quotients) {
    const Json parts = config_value(row.config_key, config_);
    if (parts.is_number_integer() && values_.contains(row.by))
      put(row.whole, parts.get<int64_t>() * values_[std::string(row.by)].get<int64_t>());
  }
  for (const GgufDifference& row : architecture_.differences) {
    const Json rest = config_value(row.config_key, config_);
    if (rest.is_number_integer() && values_.contains(row.less))
      put(row.whole, rest.get<int64_t>() + values_[std::string(row.less)].get<int64_t>());
  }
}

void Keys::put_windows() {
  std::vector<bool> windows;
  for (const size_t kind : spec_.layers) {
    const AttentionSpec* found = attention_of(spec_.kinds[kind]);
    windows.push_back(found != nullptr && found->window > 0);
  }
  metadata_.add_booleans(full("attention.sliding_window_pattern"), windows);
}

std::vector<float> as_floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

// The factors by which a scaling of some frequencies divides them.
std::vector<float> stretching_factors(const RopeConfig& rope) {
  RopeConfig plain = rope;
  plain.kind = RopeKind::plain;
  const std::vector<float> before = rope_frequencies(plain, 1), after = rope_frequencies(rope, 1);
  std::vector<float> factors;
  for (size_t i = 0; i < before.size(); ++i) factors.push_back(before[i] / after[i]);
  return factors;
}

// Factors that stop the pairs which do not turn.
std::vector<float> stopping_factors(const RopeConfig& rope) {
  constexpr float kStops = 1e30F;
  std::vector<float> factors(static_cast<size_t>(rope.dim / 2), kStops);
  std::fill_n(factors.begin(), rope.turning, 1.F);
  return factors;
}

void Keys::put_yarn(const RopeConfig& rope) {
  put("rope.scaling.type", "yarn");
  put("rope.scaling.factor", rope.factor);
  put(kOriginalLength, rope.original_positions);
  put("rope.scaling.yarn_beta_fast", static_cast<float>(rope.beta_fast));
  put("rope.scaling.yarn_beta_slow", static_cast<float>(rope.beta_slow));
  for (const char* object : {"rope_scaling", "rope_parameters"}) {
    const std::string in = std::string(object) + ".";
    put("attention.temperature_scale", config_value(in + "llama_4_scaling_beta", config_));
    const Json scale = config_value(in + "mscale_all_dim", config_);
    if (latent() != nullptr && scale.is_number())
      put(kLogMultiplier, static_cast<float>(scale.get<double>() * architecture_.log_multiplier));
  }
  if (!values_.contains(kLogMultiplier) &&
      std::abs(rope.attention_factor - yarn_mscale(rope.factor, 1)) > 1e-6)
    put("rope.scaling.yarn_attn_factor", static_cast<float>(rope.attention_factor));
}

std::vector<GgufVector> Keys::put_scaling() {
  if (rope() == nullptr) return {};
  const RopeConfig& rope = *this->rope();
  switch (rope.kind) {
    case RopeKind::linear:
      put("rope.scaling.type", "linear");
      put("rope.scaling.factor", rope.factor);
      return {};
    case RopeKind::yarn:
      put_yarn(rope);
      return {};
    case RopeKind::proportional:
      return {{"rope_freqs.weight", stopping_factors(rope)}};
    case RopeKind::llama3:
      return {{"rope_freqs.weight", stretching_factors(rope)}};
    case RopeKind::longrope:
      put(kOriginalLength, rope.original_positions);
      put("rope.scaling.attn_factor", static_cast<float>(rope.attention_factor));
      return {{"rope_factors_long.weight", as_floats(rope.long_factor)},
              {"rope_factors_short.weight", as_floats(rope.short_factor)}};
    default:
      return {};
  }
}

std::vector<GgufVector> Keys::add(bool names_windows) {
  put_lists();
  for (const GgufKey& row : architecture_.keys) put_key(row);
  for (const GgufConstant& row : architecture_.constants) {
    const Json value = Json::parse(row.json);
    value.is_array() ? put_list(row.key, value) : put(row.key, value);
  }
  put_sizes();
  if (names_windows || architecture_.names_windows) put_windows();
  return put_scaling();
}

}  // namespace

std::vector<GgufVector> describe_model(const GgufArchitecture& architecture, const Model& model,
                                       bool names_windows, io::GgufMetadata& metadata) {
  return Keys(architecture, model, metadata).add(names_windows);
}

}  // namespace sluice
