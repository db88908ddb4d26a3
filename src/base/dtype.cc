#include "src/base/dtype.h"

#include <array>
#include <cstddef>

#include "src/base/check.h"

namespace sluice {
namespace {

// The types in the order of DType.
constexpr std::array kTypes = std::to_array<StoredType>({
    {"F64", 1, 8},         {"F32", 1, 4},         {"F16", 1, 2},        {"BF16", 1, 2},
    {"F8_E4M3", 1, 1},     {"F8_E5M2", 1, 1},     {"I64", 1, 8},        {"I32", 1, 4},
    {"I16", 1, 2},         {"I8", 1, 1},          {"U64", 1, 8},        {"U32", 1, 4},
    {"U16", 1, 2},         {"U8", 1, 1},          {"BOOL", 1, 1},       {"F8_E8M0", 1, 1},
    {"F8_E4M3FNUZ", 1, 1}, {"F8_E5M2FNUZ", 1, 1}, {"C64", 1, 8},        {"F4", 2, 1},
    {"F6_E2M3", 4, 3},     {"F6_E3M2", 4, 3},     {"Q1_0", 128, 18},    {"Q2_0", 64, 18},
    {"Q4_0", 32, 18},      {"Q4_1", 32, 20},      {"Q5_0", 32, 22},     {"Q5_1", 32, 24},
    {"Q8_0", 32, 34},      {"Q2_K", 256, 84},     {"Q3_K", 256, 110},   {"Q4_K", 256, 144},
    {"Q5_K", 256, 176},    {"Q6_K", 256, 210},    {"IQ1_S", 256, 50},   {"IQ1_M", 256, 56},
    {"IQ2_XXS", 256, 66},  {"IQ2_XS", 256, 74},   {"IQ2_S", 256, 82},   {"IQ3_XXS", 256, 98},
    {"IQ3_S", 256, 110},   {"IQ4_NL", 32, 18},    {"IQ4_XS", 256, 136}, {"TQ1_0", 256, 54},
    {"TQ2_0", 256, 66},    {"MXFP4", 32, 17},     {"NVFP4", 64, 36},
});
static_assert(kTypes.size() == static_cast<size_t>(kLastBlockType) + 1, "a row for each DType");

constexpr size_t kSafetensorsTypes = static_cast<size_t>(kFirstBlockType);

}  // namespace

const StoredType& stored_type(DType dtype) { return kTypes[static_cast<size_t>(dtype)]; }
std::string_view dtype_name(DType dtype) { return stored_type(dtype).name; }

int dtype_bytes(DType dtype) {
  const StoredType& type = stored_type(dtype);
  check(type.block_elements == 1, "a type of whole bytes");
  return type.block_bytes;
}

std::optional<DType> parse_dtype(std::string_view safetensors_name) {
  for (size_t i = 0; i < kSafetensorsTypes; ++i) {
    if (kTypes[i].name == safetensors_name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

bool has_whole_blocks(DType dtype, const Shape& shape) {
  const StoredType& type = stored_type(dtype);
  if (type.block_elements == 1) return true;
  return shape.size() > 0 && shape[shape.size() - 1] % type.block_elements == 0;
}

std::optional<uint64_t> stored_bytes(DType dtype, const Shape& shape) {
  check(has_whole_blocks(dtype, shape), "a tensor of whole blocks");
  const StoredType& type = stored_type(dtype);
  const std::optional<int64_t> elements = shape.elements();
  uint64_t bytes = 0;
  if (!elements || __builtin_mul_overflow(static_cast<uint64_t>(*elements / type.block_elements),
                                          static_cast<uint64_t>(type.block_bytes), &bytes))
    return std::nullopt;
  return bytes;
}

uint64_t row_bytes(DType dtype, int64_t cols) {
  const StoredType& type = stored_type(dtype);
  check(cols >= 0 && cols % type.block_elements == 0, "columns that are whole blocks");
  return static_cast<uint64_t>(cols / type.block_elements) *
         static_cast<uint64_t>(type.block_bytes);
}

bool is_float_weight(DType dtype) {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

DType kept_dtype(DType stored) {
  return stored == DType::f64 || is_integer_vector(stored) ? DType::f32 : stored;
}

}  // namespace sluice
