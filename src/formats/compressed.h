// Values of `quantization_config` of compressed-tensors. It puts modules into groups
// by their names; shapes and types of a module's tensors tell which group's scheme it has.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "src/formats/stored_format.h"

namespace sluice {

// Returns whether one of these formats is that of the checkpoint, or of a group of its modules.
// Error(refused) for transforms of activations and for sparse weights.
bool has_compressed_format(const JsonFields& quantization,
                           std::initializer_list<std::string_view> formats);

// Returns whether compressed-tensors says that weights are plain: a checkpoint may have scales of
// the KV cache beside them. Error(refused) as above.
bool has_plain_compressed_weights(const JsonFields& quantization);

// Inputs that share a scale, and sizes of codes, as groups of modules have them.
std::vector<int64_t> compressed_group_sizes(const JsonFields& quantization);
std::vector<int64_t> compressed_bits(const JsonFields& quantization);

}  // namespace sluice
