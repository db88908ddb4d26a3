// A model whose checkpoint is cut for its ranks: a rank's files have its parts alone.
#pragma once

#include "src/models/decoder.h"

namespace sluice {

// Makes each piece, which is a rank's part of a tensor, all of a tensor that has no more than the
// parts of this rank, in the order that they have in the whole one.
void read_own_tensors(CausalLM& root);

}  // namespace sluice
