// Scales of FP8 keys and values that a checkpoint brings along. They are found, checked and read
// with the headers, because the size of a KV block depends on them.
#pragma once

#include <vector>

#include "io/checkpoint/index.h"
#include "src/models/decoder.h"

namespace sluice {

// The scales of each layer; empty where a layer has none, with a warning when others have some,
// because blocks of all layers have equal bytes. Throws Error(refused) whose one message names
// every scale that is there twice, has no counterpart, or is not a number above 0.
std::vector<KvScales> read_kv_scales(const CausalLM& model, const io::CheckpointIndex& index);

}  // namespace sluice
