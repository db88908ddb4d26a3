// Checkpoints of Meta, which are cut for as many ranks as they have files: each file has a part of
// every matrix, under the same name, and all of every vector.
// https://github.com/meta-llama/llama-models/blob/main/models/llama3/model.py
#pragma once

#include <vector>

#include "io/checkpoint/index.h"

namespace sluice::io {

struct JoinedParts {
  std::vector<CheckpointFile> files;  // the parts, and one that is joined of them
  std::vector<StoredTensor> tensors;
};

// Joins the tensors that all files have; one that is in a single file stays as it is there. Throws
// Error(refused).
JoinedParts join_parts(std::vector<TensorFile> parts);

}  // namespace sluice::io
