// Scales of FP8 keys and values for the checkpoints of tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/checkpoint.h"

namespace sluice::test {

// A scale of dtype F32, BF16 or F16.
TinyTensor scale_tensor(std::string name, float value, const char* dtype = "F32",
                        std::vector<int64_t> shape = {});

std::string attention_path(int64_t layer);

// Different ones for each layer, under the names of vLLM.
float key_scale(int64_t layer);
float value_scale(int64_t layer);
void add_kv_scales(std::vector<TinyTensor>& tensors, int64_t layers);

}  // namespace sluice::test
