#include "quant/scheme.h"

#include <array>

namespace sluice {
namespace {

constexpr int64_t kWholeRow = int64_t{1} << 24;  // columns: more than any row has

constexpr WeightFormat integers(int bits, int64_t cols) {
  return {.dtype = DType::u8,
          .scales = ScaleKind::grouped,
          .scale_cols = cols,
          .bits = bits,
          .symmetric = true,
          .zero_base = 1 << (bits - 1)};
}
constexpr WeightFormat floats(CodeTable table, int bits, DType scales, int64_t cols) {
  return {.dtype = DType::u8,
          .scales = ScaleKind::grouped,
          .scale_cols = cols,
          .bits = bits,
          .table = table,
          .scale_type = scales,
          .outer = scales == DType::f8_e4m3 ? Outer::divides : Outer::none};
}

constexpr QuantScheme kRoundedInputs{.name = "q8_activations", .quantized_input = true};

constexpr int kElementSchemes = 7;
constexpr std::array kSchemes = std::to_array<QuantScheme>({
    {"none", ScaleGroup::none},
    {"fp8_per_tensor", ScaleGroup::tensor},
    {"fp8_per_channel", ScaleGroup::row},
    {"fp8_per_block", ScaleGroup::block},
    {.name = "fp8_dynamic", .group = ScaleGroup::row, .quantized_input = true},
    {.name = "fp8_dynamic_per_block", .group = ScaleGroup::block, .quantized_input = true},
    {"int8", ScaleGroup::row, DType::i8, kMostI8Cols},
    {.name = "int8_weight_only", .group = ScaleGroup::row, .grouped = integers(8, kWholeRow)},
    {.name = "int4_g128", .group = ScaleGroup::columns, .grouped = integers(4, 128)},
    {.name = "int4_g32", .group = ScaleGroup::columns, .grouped = integers(4, 32)},
    {.name = "nf4",
     .group = ScaleGroup::columns,
     .grouped = floats(CodeTable::own, 4, DType::f32, 64)},
    {.name = "mxfp8",
     .group = ScaleGroup::columns,
     .grouped = floats(CodeTable::e4m3, 8, DType::f8_e8m0, 32)},
    {.name = "mxfp4",
     .group = ScaleGroup::columns,
     .grouped = floats(CodeTable::e2m1, 4, DType::f8_e8m0, 32)},
    {.name = "nvfp4",
     .group = ScaleGroup::nested,
     .grouped = floats(CodeTable::e2m1, 4, DType::f8_e4m3, 16)},
});

}  // namespace

WeightFormat QuantScheme::format(DType stored, WeightLayout layout) const {
  if (grouped.scales == ScaleKind::grouped) {
    WeightFormat format = grouped;
    format.layout = layout;
    return format;
  }
  switch (group) {
    case ScaleGroup::tensor:
    case ScaleGroup::row:
      return {codes, layout, ScaleKind::per_row, quantized_input};
    case ScaleGroup::block:
      return {codes, layout, ScaleKind::per_block, quantized_input};
    default:
      return {stored, layout, ScaleKind::none};
  }
}

std::span<const QuantScheme> quant_schemes() { return kSchemes; }
const QuantScheme& rounded_inputs_scheme() { return kRoundedInputs; }
std::span<const QuantScheme> element_schemes() { return quant_schemes().first(kElementSchemes); }

std::optional<QuantScheme> find_quant_scheme(std::string_view name) {
  if (name == "fp8") name = "fp8_per_channel";
  if (name == "int4") name = "int4_g128";
  if (name == kRoundedInputs.name) return kRoundedInputs;
  for (const QuantScheme& scheme : kSchemes) {
    if (scheme.name == name) return scheme;
  }
  return std::nullopt;
}

}  // namespace sluice
