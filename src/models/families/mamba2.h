// Mamba-2 (arXiv:2405.21060), which several families have in the place of attention or beside it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/base/json.h"
#include "src/models/decoder_spec.h"

namespace sluice {

// config.json's keys, and the defaults of the config class. Those of Bamba, which most have.
struct Mamba2Keys {
  const char* heads = "mamba_n_heads";
  int64_t absent_heads = 128;
  const char* head_dim = "mamba_d_head";
  std::optional<int64_t> absent_head_dim = {};  // nullopt: as where it is "auto"
  const char* groups = "mamba_n_groups";
  int64_t absent_groups = 1;
  const char* state = "mamba_d_state";
  int64_t absent_state = 256;
  const char* width = "mamba_d_conv";
  const char* expand = "mamba_expand";
  const char* inner = nullptr;  // all heads' elements, if not `expand` times the hidden size
  int64_t absent_inner = 0;
  const char* conv_bias = "mamba_conv_bias";
  const char* input_bias = "mamba_proj_bias";
  const char* output_bias = "mamba_proj_bias";
  const char* activation = "hidden_act";
};

// Under `name`, with a norm of each group's part of the output, after its gate.
Mamba2Spec mamba2_mixer(const JsonFields& config, const std::string& name, int64_t hidden_size,
                        const NormParams& norm, const Mamba2Keys& keys = {});

}  // namespace sluice
