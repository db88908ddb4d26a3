// The functions of this instruction set as a table of kernels.
#pragma once

#include "kernels/cpu/simd/functions.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr Ops vector_ops(const char* name) {
  return {
      .name = name,
#if defined(__AVX512BF16__)
      .bf16_units = Units::bf16_pairs,
      .pair_units = Units::bf16_pairs,
      .attention_units = Units::bf16_pairs,
#else
      .bf16_units = Units::f32_rounded,
      .pair_units = Units::f32_rounded,
      .attention_units = Units::f32_rounded,
#endif
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
      .i8_units = Units::i16_pairs,
#else
      .i8_units = Units::i8,
#endif
      .pack_rows = pack_rows,
      .linear = linear,
#if defined(__AVX512VNNI__)
      .byte_rows = INT64_MAX,
      .most_byte = 256,
#elif defined(__AVX2__)
      .byte_rows = 1,  // few_rows.h
      .most_byte = 128,
#else
      .byte_rows = 0,
      .most_byte = 0,
#endif
      .pack_whole = pack_whole,
      .grouped = grouped,
      .attend = attend,
      .merge = merge,
      .finish = finish,
      .index_scores = index_scores,
      .norm = norm,
      .add_norm = add_norm,
      .sum_squares = sum_squares,
      .add = add,
      .scale = scale,
      .soft_cap = soft_cap,
      .clamp = clamp,
      .causal_conv = causal_conv,
      .scan = scan,
      .selective_scan = selective_scan,
      .activate = activate,
      .rope = rope,
      .rope_neighbours = rope_neighbours,
      .to_bf16 = to_bf16,
      .to_float8 = to_float8,
      .encode = encode,
      .largest = largest,
      .interleave = interleave,
      .pack_codes = pack_codes,
      .order_codes = order_codes,
      .multiply_add = multiply_add,
      .read = read,
  };
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
