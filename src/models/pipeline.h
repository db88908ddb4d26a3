// Pipeline parallelism: the layers of a model as ranks hold them, one after another. The first
// stage has the embedding, too, and the last one the final norm and the head.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "io/checkpoint/index.h"
#include "src/models/decoder_spec.h"

namespace sluice {

// The part of a model that is built, where it is not of each matrix a rank's part.
struct PartRequest {
  // A stage, and the memory of each, by which they divide the layers [bytes]; none: one has all.
  int stage = 0;
  std::vector<uint64_t> budgets = {};
  bool whole_experts = false;  // each expert is one rank's
};

// Consecutive layers of one stage, and what the checkpoint has for it [bytes].
struct StageLayers {
  Share layers;
  uint64_t bytes = 0;
};

struct Stage {
  int number = 0;
  std::vector<StageLayers> all = {};  // of the model; none: this one has all layers

  int count() const { return all.empty() ? 1 : static_cast<int>(all.size()); }
  bool is_first() const { return number == 0; }
  bool is_last() const { return number + 1 == count(); }
  // Bytes of this stage's part, as a share of the checkpoint.
  double share() const;
};

// Divides the layers so that the stages are filled alike: the one with the most bytes for its
// budget, in sixteenths of the largest, has as few as possible. Without an index all layers count
// the same. Layers that attend to the same keys are in one stage. Error(usage) where there are not
// enough that can be divided.
Stage divide_layers(const DecoderSpec& spec, const io::CheckpointIndex* index,
                    const PartRequest& request);

// Modules of other ranks, by which names of tensors begin: those of other stages, and experts.
using ModulesElsewhere = std::unordered_set<std::string>;
ModulesElsewhere modules_elsewhere(const DecoderSpec& spec, Rank rank, const Stage& stage);
// Returns whether a tensor is of one of them.
bool is_elsewhere(const ModulesElsewhere& modules, const std::string& tensor);

}  // namespace sluice
