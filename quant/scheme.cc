#include "quant/scheme.h"

#include <array>

namespace sluice {
namespace {

constexpr std::array<QuantScheme, 7> kSchemes{{
    {"none", ScaleGroup::none},
    {"fp8_per_tensor", ScaleGroup::tensor},
    {"fp8_per_channel", ScaleGroup::row},
    {"fp8_per_block", ScaleGroup::block},
    {.name = "fp8_dynamic", .group = ScaleGroup::row, .quantized_input = true},
    {.name = "fp8_dynamic_per_block", .group = ScaleGroup::block, .quantized_input = true},
    {"int8", ScaleGroup::row, DType::i8, kMostI8Cols},
}};

}  // namespace

WeightFormat QuantScheme::format(DType stored, WeightLayout layout) const {
  switch (group) {
    case ScaleGroup::none:
      return {stored, layout, ScaleKind::none};
    case ScaleGroup::tensor:
    case ScaleGroup::row:
      return {codes, layout, ScaleKind::per_row, quantized_input};
    case ScaleGroup::block:
      return {codes, layout, ScaleKind::per_block, quantized_input};
  }
  return {stored, layout, ScaleKind::none};
}

std::span<const QuantScheme> quant_schemes() { return kSchemes; }

std::optional<QuantScheme> find_quant_scheme(std::string_view name) {
  if (name == "fp8") name = "fp8_per_channel";
  for (const QuantScheme& scheme : kSchemes) {
    if (scheme.name == name) return scheme;
  }
  return std::nullopt;
}

}  // namespace sluice
