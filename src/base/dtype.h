// Types of stored tensors: what safetensors files hold, under the names that safetensors gives
// them, and the blocks of GGUF. One table has the size of each (dtype.cc); all
// arithmetic on stored bytes follows from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "src/base/shape.h"

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
  f8_e8m0,  // a power of two, as the scales of MX formats are
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  c64,
  f4,  // E2M1, two a byte
  f6_e2m3,
  f6_e3m2,
  // Blocks of GGUF (ggml-common.h, as gguf-py has them).
  q1_0,
  q2_0,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq1_s,
  iq1_m,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq3_xxs,
  iq3_s,
  iq4_nl,
  iq4_xs,
  tq1_0,
  tq2_0,
  e2m1_e8m0,  // floats of four bits, and a power of two for 32 of them
  e2m1_e4m3,  // with a scale for 16 of them
};
inline constexpr DType kFirstBlockType = DType::q1_0, kLastBlockType = DType::e2m1_e4m3;

struct StoredType {
  std::string_view name;   // "BF16", "F8_E4M3", "Q4_K", ...
  int block_elements = 1;  // of a row
  int block_bytes = 1;
};
const StoredType& stored_type(DType dtype);

// Bytes of one element, of a type whose blocks are single elements.
int dtype_bytes(DType dtype);
std::string_view dtype_name(DType dtype);
// nullopt for a name that safetensors does not know; GGUF's types have numbers, not names.
std::optional<DType> parse_dtype(std::string_view safetensors_name);

// False where a row of the tensor ends inside a block.
bool has_whole_blocks(DType dtype, const Shape& shape);
// Bytes of a tensor of whole blocks; nullopt when that overflows 64 bits.
std::optional<uint64_t> stored_bytes(DType dtype, const Shape& shape);
// Bytes of `cols` elements of a row, which are whole blocks.
uint64_t row_bytes(DType dtype, int64_t cols);

// True for the types in which a weight may be stored: integers are not among them.
bool is_float_weight(DType dtype);
// Integers of vectors, as tables of experts have them, which are read as float32.
constexpr bool is_integer_vector(DType dtype) { return dtype == DType::i64 || dtype == DType::i32; }
// The type in which a stored weight that nobody quantizes is kept: its own, f32 for f64.
DType kept_dtype(DType stored);

}  // namespace sluice
