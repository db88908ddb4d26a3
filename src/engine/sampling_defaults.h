// The sampling parameters that a model's generation_config.json recommends.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "src/engine/sampling_params.h"

namespace sluice {

struct SamplingDefault {
  std::string key;  // of generation_config.json
  double value = 0;
};

// Sets what the config recommends, but for the keys that are `given` in another way. Returns what
// differs from before. Error(refused) for values that are no numbers.
std::vector<SamplingDefault> take_sampling_defaults(
    const Json& config, const std::function<bool(const std::string&)>& given,
    SamplingParams& sampling);

}  // namespace sluice
