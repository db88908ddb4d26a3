// The type that a linear layer's input becomes, by its weights' type.
#pragma once

#include "kernels/cpu/ops.h"
#include "kernels/kernels.h"

namespace sluice {

inline cpu::Units input_units(const cpu::Ops& ops, Compute compute, DType weights) {
  if (weights == DType::i8) return ops.i8_units;
  const bool narrow = weights == DType::bf16 || weights == DType::f8_e4m3;
  return compute == Compute::bf16 && narrow ? ops.bf16_units : cpu::Units::f32;
}

}  // namespace sluice
