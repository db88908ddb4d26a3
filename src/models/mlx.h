// Checkpoints of MLX (mlx-lm, mlx-vlm): directories of the hub's form, some of whose tensors have
// other names and shapes than transformers gives them. src/formats/mlx.cc has their quantization.
#pragma once

#include "io/checkpoint/index.h"
#include "src/base/json.h"
#include "src/models/source.h"

namespace sluice {

// Returns whether a config.json is that of such a checkpoint, which is quantized.
bool is_mlx(const Json& config);
// Returns whether tensors lie as MLX alone has them, quantized or not.
bool lies_as_mlx(const io::CheckpointIndex& stored);
// The tensors as transformers would have them.
io::CheckpointIndex with_hub_names(const io::CheckpointIndex& stored);
// Throws Error(refused) for a config.json whose multipliers mlx-lm moves into weights.
void refuse_multiplied(const Json& config);
// Differences of weights, as the tensors of `stored` show them.
SourceFacts mlx_facts(const io::CheckpointIndex& stored);

}  // namespace sluice
