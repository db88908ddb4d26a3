// Quantization schemes: the format of a weight after it is loaded. A scheme is data: kernels know
// formats, not schemes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "quant/format.h"
#include "src/base/dtype.h"

namespace sluice {

// The elements of a stored tensor that share one scale.
//   block    128 x 128, from the tensor's first row and column
//   columns  WeightFormat::scale_cols of a row
//   nested   the same, and the tensor has an outer scale
enum class ScaleGroup : uint8_t { none, tensor, row, block, columns, nested };
// Returns whether a scale depends on all elements of the tensor.
constexpr bool has_tensor_scale(ScaleGroup group) {
  return group == ScaleGroup::tensor || group == ScaleGroup::nested;
}

struct QuantScheme {
  std::string_view name;  // as --quantization names it
  ScaleGroup group = ScaleGroup::none;
  DType codes = DType::f8_e4m3;   // unless group is none
  int64_t most_cols = INT64_MAX;  // that the kernels can sum
  // The same as in WeightFormat; without a group, of layers whose weights stay as they are stored.
  bool quantized_input = false;
  WeightFormat grouped = {};  // of grouped codes, but for the layout; else without scales

  // Returns the format of a weight that is stored as `stored` (f32, f16, bf16).
  WeightFormat format(DType stored, WeightLayout layout) const;
  bool operator==(const QuantScheme&) const = default;
};

// Every scheme (quant/scheme.cc), in the order in which help texts list them: those of whole
// elements, then those of grouped codes.
std::span<const QuantScheme> quant_schemes();
std::span<const QuantScheme> element_schemes();  // the former
// q8_activations, which changes no weight: layers whose weights are stored in groups of integers
// round their inputs to 8 bits.
const QuantScheme& rounded_inputs_scheme();
// Any of these, or nullopt for an unknown name. "fp8" is the best FP8 for the CPU, fp8_per_channel;
// "int4" is int4_g128.
std::optional<QuantScheme> find_quant_scheme(std::string_view name);

}  // namespace sluice
