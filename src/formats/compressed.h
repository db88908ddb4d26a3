// Values of `quantization_config` of compressed-tensors. It puts modules into groups
// by their names; shapes and types of a module's tensors tell which group's scheme it has.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "quant/format.h"
#include "src/formats/stored_format.h"

namespace sluice {

// Returns whether one of these formats is that of the checkpoint, or of a group of its modules.
// Error(refused) for transforms of activations and for sparse weights.
bool has_compressed_format(const JsonFields& quantization,
                           std::initializer_list<std::string_view> formats);

// Returns whether compressed-tensors says that weights are plain: a checkpoint may have scales of
// the KV cache beside them. Error(refused) as above.
bool has_plain_compressed_weights(const JsonFields& quantization);

// Outputs and inputs that have one scale.
struct ScaleBlock {
  int64_t outputs = kScaleBlock;
  int64_t inputs = kScaleBlock;
};
// Two sizes, or text as "128x128"; nullopt: they are none.
std::optional<ScaleBlock> scale_block(const Json& sizes);
// The blocks of groups of modules. Error(refused) for what is none.
std::vector<ScaleBlock> compressed_blocks(const JsonFields& quantization);

// Inputs that share a scale, and sizes of codes, as groups of modules have them.
std::vector<int64_t> compressed_group_sizes(const JsonFields& quantization);
std::vector<int64_t> compressed_bits(const JsonFields& quantization);

}  // namespace sluice
