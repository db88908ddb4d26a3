// Ranks that compute a model together: rank 0 tells the others what its planner, its loaded model
// and its runner do.
#pragma once

#include <optional>
#include <stop_token>

#include "src/engine/loaded_model.h"
#include "src/engine/planner.h"

namespace sluice {

// Does on this rank what rank 0 tells, until its planner ends. `model`: made when rank 0 loads.
void follow(Planner& planner, std::optional<LoadedModel>& model, const std::stop_token& stop);

}  // namespace sluice
