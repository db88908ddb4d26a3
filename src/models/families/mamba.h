// Mamba (arXiv:2312.00752), which others have in the place of attention.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/json.h"
#include "src/models/decoder_spec.h"

namespace sluice {

// config.json's keys; absent ones have the defaults that all config classes share. Those of Jamba.
struct MambaKeys {
  const char* state = "mamba_d_state";
  const char* width = "mamba_d_conv";
  const char* expand = "mamba_expand";
  const char* inner = nullptr;  // channels, if not `expand` times the hidden size
  const char* step_rank = "mamba_dt_rank";
  const char* conv_bias = "mamba_conv_bias";
  const char* bias = "mamba_proj_bias";
};

// Under `name`, without norms of what the scan reads.
MambaSpec mamba_mixer(const JsonFields& config, const std::string& name, int64_t hidden_size,
                      const MambaKeys& keys = {});

}  // namespace sluice
