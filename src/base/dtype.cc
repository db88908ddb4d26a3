#include "src/base/dtype.h"

#include <array>
#include <utility>

namespace sluice {
namespace {

struct Entry {
  DType dtype;
  std::string_view name;
  int bytes;
};
constexpr std::array<Entry, 15> kTypes{{
    {DType::f64, "F64", 8},
    {DType::f32, "F32", 4},
    {DType::f16, "F16", 2},
    {DType::bf16, "BF16", 2},
    {DType::f8_e4m3, "F8_E4M3", 1},
    {DType::f8_e5m2, "F8_E5M2", 1},
    {DType::i64, "I64", 8},
    {DType::i32, "I32", 4},
    {DType::i16, "I16", 2},
    {DType::i8, "I8", 1},
    {DType::u64, "U64", 8},
    {DType::u32, "U32", 4},
    {DType::u16, "U16", 2},
    {DType::u8, "U8", 1},
    {DType::boolean, "BOOL", 1},
}};

}  // namespace

int dtype_bytes(DType dtype) { return kTypes[static_cast<size_t>(dtype)].bytes; }
std::string_view dtype_name(DType dtype) { return kTypes[static_cast<size_t>(dtype)].name; }

std::optional<DType> parse_dtype(std::string_view safetensors_name) {
  for (const Entry& e : kTypes) {
    if (e.name == safetensors_name) return e.dtype;
  }
  return std::nullopt;
}

bool is_float_weight(DType dtype) {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

DType kept_dtype(DType stored) { return stored == DType::f64 ? DType::f32 : stored; }

}  // namespace sluice
