// Llama's layout, which many families share: its config.json's keys and its tensors' names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "src/base/json.h"
#include "src/models/decoder_spec.h"

namespace sluice {

// Of a family's config class in transformers, for keys that config.json lacks.
struct LlamaDefaults {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  std::optional<int64_t> num_key_value_heads = {};  // nullopt: as many as there are heads
  std::optional<int64_t> head_dim = {};             // nullopt: hidden_size / num_attention_heads
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 0;
  double rope_theta = 0;
  std::string_view hidden_act = "silu";
  bool tie_word_embeddings = false;
  // config.json's key for the share of each head that rope rotates; nullptr: all.
  const char* part_key = nullptr;
};

// One kind of layer: full attention with rope, a gated MLP, no biases.
DecoderSpec llama_layout(const JsonFields& config, const LlamaDefaults& defaults);

// Gives each layer its window (0: none): a kind of layer for each window that there is.
void use_windows(DecoderSpec& spec, std::span<const int64_t> windows);

}  // namespace sluice
