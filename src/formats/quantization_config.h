// The `quantization_config` of a checkpoint, wherever it is said and however: tools have keys,
// files and names of methods of their own. Formats know one of each.
#pragma once

#include <functional>
#include <optional>

#include "src/base/json.h"

namespace sluice {

// Gives `config` (config.json) the quantization_config that the checkpoint has. `read` returns what
// a file of that name beside config.json has; nullopt: there is none.
void settle_quantization_config(Json& config,
                                const std::function<std::optional<Json>(const char* file)>& read);

}  // namespace sluice
