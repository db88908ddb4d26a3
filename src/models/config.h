// config.json and generation_config.json, as far as every family shares them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "src/base/dtype.h"
#include "src/base/json.h"
#include "src/models/rope.h"

namespace sluice {

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
  bool tie_word_embeddings = false;
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
DecoderConfig parse_decoder_config(const JsonFields& config);

// A window of sliding_window tokens for each layer that layer_types says has one ("full_attention",
// "sliding_attention"); where there are no layer_types, for all. No window where sliding_window is
// null.
std::vector<int64_t> parse_windows(const JsonFields& config, int64_t layers);

// "silu", "gelu_pytorch_tanh", ... ; refuses others by the key's name.
Activation parse_activation(const JsonFields& config, const char* key, std::string fallback);

// The whole of what a model's directory says about itself, weights aside.
struct ModelFiles {
  Json config;                   // config.json
  std::string architecture;      // "LlamaForCausalLM"
  DType dtype = DType::bf16;     // torch_dtype / dtype; bf16 when it says nothing
  std::vector<int32_t> eos_ids;  // generation_config.json, else config.json
  std::vector<std::string> warnings;
};
ModelFiles read_model_files(const std::filesystem::path& directory);

}  // namespace sluice
