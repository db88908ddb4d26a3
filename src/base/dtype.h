// Element types of tensors, under the names that safetensors gives them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace sluice {

enum class DType : uint8_t {
  f64,
  f32,
  f16,
  bf16,
  f8_e4m3,
  f8_e5m2,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8,
  boolean,
};

// Bytes of one element.
int dtype_bytes(DType dtype);
// "BF16", "F8_E4M3", ... as in a safetensors header.
std::string_view dtype_name(DType dtype);
// nullopt for a name that safetensors does not know or that has no whole number of bytes.
std::optional<DType> parse_dtype(std::string_view safetensors_name);
// True for the types in which a weight may be stored: integers are not among them.
bool is_float_weight(DType dtype);
// The type in which a stored weight that nobody quantizes is kept: its own, f32 for f64.
DType kept_dtype(DType stored);

}  // namespace sluice
