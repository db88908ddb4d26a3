// Values of `quantization_config` of AMD's Quark. It lists modules by their names; shapes and types
// of a module's tensors tell how its weight is stored.
#pragma once

#include <string_view>

#include "src/formats/stored_format.h"

namespace sluice {

// Returns whether Quark has made weights of `dtype` ("fp8_e4m3", "fp4"), of all modules or some.
// Error(refused) for rotations of activations.
bool has_quark_weights(const JsonFields& quantization, std::string_view dtype);

}  // namespace sluice
