// The layout that most families share, Llama's: its config.json's keys and its tensors' names.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "src/base/json.h"
#include "src/models/decoder_spec.h"
#include "src/models/source.h"

namespace sluice {

// Defaults of a family's config class in transformers, for keys absent from config.json.
struct LayoutDefaults {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // 0: all layers have experts, whose width is another key
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  std::optional<int64_t> num_key_value_heads = {};  // nullopt: as many as there are heads
  std::optional<int64_t> head_dim = {};             // nullopt: hidden_size / num_attention_heads
  bool fixed_head_dim = false;                      // whatever config.json's head_dim says
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 0;
  double rope_theta = 0;
  std::string_view hidden_act = "silu";
  bool tie_word_embeddings = false;
  // config.json's key for the share of each head that rope rotates; nullptr: all.
  const char* part_key = nullptr;
  double part = 1;
  int64_t original_positions = 0;     // as RopeModel's `default_original`
  const char* rope_layers = nullptr;  // as RopeModel's `layers`
  bool rope_of_class = false;         // without rope fields, nothing beside them counts
  const char* eps_key = "rms_norm_eps";
  NormKind norm = NormKind::rms;
  bool norm_bias = false;
  const char* activation_key = "hidden_act";
  const char* layers_key = "num_hidden_layers";
  const char* positions_key = "max_position_embeddings";
};

// One kind of layer: full attention with rope, a gated MLP, no biases.
DecoderSpec common_layout(const JsonFields& config, const LayoutDefaults& defaults);

// Makes the parts views of one fused tensor, begun at these outputs.
void fuse(LinearSpec& linear, const std::string& name,
          std::initializer_list<int64_t> first_outputs);

// Blocks read the stream without a norm; their outputs have the norms post_attention_layernorm and
// post_feedforward_layernorm.
void norm_outputs(LayerSpec& layer);

// Blocks read the stream as it is, and it is normed once their output is added, by the norms that
// they had before. The last of these is the model's. Of a model with one kind of layer.
void norm_stream(DecoderSpec& spec);

// activation(up x) in the place of a gated MLP's, under these names in the layer's MLP.
void use_plain_mlp(MlpSpec& mlp, std::string_view up, std::string_view down);

// These names for a gated MLP and its matrices.
void name_mlp(MlpSpec& mlp, const std::string& name, std::string_view gate, std::string_view up,
              std::string_view down);

// Lets a layer attend to the keys and values of layer `of`, by queries of its own.
void share_keys(size_t of, AttentionSpec& attention);
// Tensors that checkpoints may have of the keys and values of such a layer.
void ignore_keys(const LayerSpec& layer, int64_t number, DecoderSpec& spec);

// The attention settings in which layers of one model differ.
struct LayerAttention {
  int64_t window = 0;              // 0: none
  std::optional<size_t> rope = 0;  // of the model's; nullopt: the layer does not rotate
  bool operator==(const LayerAttention&) const = default;
};
// Makes a kind of layer for each distinct setting.
void use_attention(DecoderSpec& spec, std::span<const LayerAttention> layers);
// Does what use_attention does, for layers that all rotate, those with a window by the model's rope
// of that number.
void use_windows(DecoderSpec& spec, std::span<const int64_t> windows, size_t rope_of_windows = 0);

// Reads the numbers of single layers from per_layer_config, which may set num_key_value_heads and
// intermediate_size.
LayerCounts read_layer_counts(const JsonFields& config, size_t layers);
// Makes a kind of layer for each distinct size. False for sizes that the layers cannot have.
bool use_layer_counts(DecoderSpec& spec, const LayerCounts& counts);

}  // namespace sluice
