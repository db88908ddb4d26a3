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
enum class ScaleGroup : uint8_t {
  none,
  tensor,
  row,
  block
};  // block: 128 x 128, from the tensor's first row and column

struct QuantScheme {
  std::string_view name;  // as --quantization names it
  ScaleGroup group = ScaleGroup::none;
  DType codes = DType::f8_e4m3;   // unless group is none
  int64_t most_cols = INT64_MAX;  // that the kernels can sum
  bool quantized_input = false;   // as in WeightFormat

  // Returns the format of a weight that is stored as `stored` (f32, f16, bf16).
  WeightFormat format(DType stored, WeightLayout layout) const;
  bool operator==(const QuantScheme&) const = default;
};

// Every scheme, in the order in which help texts list them: none, fp8_per_tensor, fp8_per_channel,
// fp8_per_block, fp8_dynamic, fp8_dynamic_per_block, int8.
std::span<const QuantScheme> quant_schemes();
// nullopt for an unknown name. "fp8" is the best FP8 for the CPU: fp8_per_channel.
std::optional<QuantScheme> find_quant_scheme(std::string_view name);

}  // namespace sluice
