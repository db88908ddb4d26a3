// config.json and generation_config.json, as far as every family shares them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "src/base/dtype.h"
#include "src/base/json.h"
#include "src/models/rope.h"

namespace sluice {

// What a config class of transformers takes for a key that config.json lacks. A null is another
// thing: it has a meaning of its own, or is refused.
struct ConfigDefaults {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  std::optional<int64_t> num_key_value_heads;  // nullopt: as many as there are heads
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 0;
  double rope_theta = 0;
  std::string_view hidden_act;
  bool tie_word_embeddings = false;
  std::optional<int64_t> sliding_window;  // nullopt: none
};

// What the shared decoder (src/models/decoder.h) needs to know. Families fill it from their
// config.json.
struct DecoderConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_positions = 0;
  float rms_norm_eps = 1e-6f;
  Activation activation = Activation::silu;
  RopeConfig rope;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  bool tie_word_embeddings = false;  // where the checkpoint is known: as its tensors have it
  std::string embedding_tensor = "model.embed_tokens.weight";  // that the table is read from
  // Of each layer: the last tokens that a token attends to, itself included; 0: all.
  std::vector<int64_t> windows;
};

// Bounds that no real model passes; they keep arithmetic on sizes far from overflow.
inline constexpr int64_t kMaxWidth = int64_t{1} << 20;  // hidden_size, head_dim, heads
inline constexpr int64_t kMaxVocab = int64_t{1} << 24;
inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxPositions = int64_t{1} << 31;

// Reads and checks the fields that Llama-like families have in common. Throws Error(refused) naming
// the key.
DecoderConfig parse_decoder_config(const JsonFields& config, const ConfigDefaults& defaults);

// A window of sliding_window tokens for each layer that layer_types says has one ("full_attention",
// "sliding_attention"); where there are no layer_types, for all. No window where sliding_window is
// null.
std::vector<int64_t> parse_windows(const JsonFields& config, const ConfigDefaults& defaults,
                                   int64_t layers);

// "silu", "gelu_pytorch_tanh", ... ; refuses others by the key's name.
Activation parse_activation(const JsonFields& config, const char* key, std::string_view fallback);

// The whole of what a model's directory says about itself, weights aside.
struct ModelFiles {
  Json config;                   // config.json
  std::string architecture;      // "LlamaForCausalLM"; build_model finds it
  std::optional<DType> dtype;    // dtype / torch_dtype; nullopt: that of the weights
  std::vector<int32_t> eos_ids;  // generation_config.json, where there is none config.json
};
ModelFiles read_model_files(const std::filesystem::path& directory);

}  // namespace sluice
