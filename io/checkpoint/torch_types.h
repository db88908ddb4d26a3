// The names that pickles of torch.save may ask for.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "src/base/dtype.h"

namespace sluice::io {

enum class TorchRole : uint8_t {
  tensor,     // (storage, offset, size, stride, ...)
  tensor_v3,  // the same with a type behind: the storage is bytes
  parameter,  // (tensor, ...)
  size,       // torch.Size((...))
  storage,    // of elements of `dtype`
  bytes,      // a storage without a type
  dtype,
  device,
};

struct TorchGlobal {
  std::string_view name;
  TorchRole role = TorchRole::tensor;
  DType dtype = DType::u8;
};

inline constexpr auto kTorchGlobals = std::to_array<TorchGlobal>({
    {"torch._utils._rebuild_tensor_v2", TorchRole::tensor},
    {"torch._utils._rebuild_tensor", TorchRole::tensor},
    {"torch._utils._rebuild_tensor_v3", TorchRole::tensor_v3},
    {"torch._utils._rebuild_parameter", TorchRole::parameter},
    {"torch.Size", TorchRole::size},
    {"torch.device", TorchRole::device},
    {"torch.DoubleStorage", TorchRole::storage, DType::f64},
    {"torch.FloatStorage", TorchRole::storage, DType::f32},
    {"torch.HalfStorage", TorchRole::storage, DType::f16},
    {"torch.BFloat16Storage", TorchRole::storage, DType::bf16},
    {"torch.LongStorage", TorchRole::storage, DType::i64},
    {"torch.IntStorage", TorchRole::storage, DType::i32},
    {"torch.ShortStorage", TorchRole::storage, DType::i16},
    {"torch.CharStorage", TorchRole::storage, DType::i8},
    {"torch.ByteStorage", TorchRole::storage, DType::u8},
    {"torch.BoolStorage", TorchRole::storage, DType::boolean},
    {"torch.ComplexFloatStorage", TorchRole::storage, DType::c64},
    {"torch.UntypedStorage", TorchRole::bytes},
    {"torch.storage.UntypedStorage", TorchRole::bytes},
    {"torch.float64", TorchRole::dtype, DType::f64},
    {"torch.float32", TorchRole::dtype, DType::f32},
    {"torch.float16", TorchRole::dtype, DType::f16},
    {"torch.bfloat16", TorchRole::dtype, DType::bf16},
    {"torch.float8_e4m3fn", TorchRole::dtype, DType::f8_e4m3},
    {"torch.float8_e5m2", TorchRole::dtype, DType::f8_e5m2},
    {"torch.float8_e4m3fnuz", TorchRole::dtype, DType::f8_e4m3fnuz},
    {"torch.float8_e5m2fnuz", TorchRole::dtype, DType::f8_e5m2fnuz},
    {"torch.float8_e8m0fnu", TorchRole::dtype, DType::f8_e8m0},
    {"torch.int64", TorchRole::dtype, DType::i64},
    {"torch.int32", TorchRole::dtype, DType::i32},
    {"torch.int16", TorchRole::dtype, DType::i16},
    {"torch.int8", TorchRole::dtype, DType::i8},
    {"torch.uint64", TorchRole::dtype, DType::u64},
    {"torch.uint32", TorchRole::dtype, DType::u32},
    {"torch.uint16", TorchRole::dtype, DType::u16},
    {"torch.uint8", TorchRole::dtype, DType::u8},
    {"torch.bool", TorchRole::dtype, DType::boolean},
    {"torch.complex64", TorchRole::dtype, DType::c64},
});

}  // namespace sluice::io
