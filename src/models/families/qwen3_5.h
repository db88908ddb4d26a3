// Parts of Qwen3.5 that other families have, too.
#pragma once

#include <cstdint>
#include <string>

#include "src/base/json.h"
#include "src/models/expert_layout.h"

namespace sluice {

// Defaults of the config class for absent keys.
struct DeltaNetDefaults {
  int64_t key_heads = 16;
  int64_t value_heads = 32;
};
// A gated DeltaNet under this name, whose q, k and v are one tensor. `norm`: of its output.
GatedDeltaNetSpec qwen_delta_net(const JsonFields& config, const DeltaNetDefaults& defaults,
                                 const std::string& name, const NormParams& norm);

// Experts, a tensor each or stacked, beside a shared one whose sigmoid says how much it counts.
ExpertsSpec qwen_experts(const JsonFields& config, const ExpertKeys& keys, const MlpSpec& mlp);

}  // namespace sluice
