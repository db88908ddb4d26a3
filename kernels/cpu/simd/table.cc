#include "kernels/cpu/simd/functions.h"

#define SLUICE_TEXT_OF(name) #name
#define SLUICE_TEXT(name) SLUICE_TEXT_OF(name)

namespace sluice::cpu::SLUICE_ISA {

const Ops kOps = {
    .name = SLUICE_TEXT(SLUICE_ISA),
#if defined(__AVX512BF16__)
    .bf16_units = Units::bf16_pairs,
#else
    .bf16_units = Units::f32_rounded,
#endif
#if defined(__AVX2__) && !defined(__AVX512VNNI__)
    .i8_units = Units::i16_pairs,
#else
    .i8_units = Units::i8,
#endif
    .pack_rows = pack_rows,
    .linear = linear,
    .attend = attend,
    .merge = merge,
    .finish = finish,
    .rms_norm = rms_norm,
    .add_rms_norm = add_rms_norm,
    .add = add,
    .gated_activation = gated_activation,
    .rope = rope,
    .to_bf16 = to_bf16,
    .to_float8 = to_float8,
    .encode = encode,
    .largest = largest,
    .multiply_add = multiply_add,
    .read = read,
};

}  // namespace sluice::cpu::SLUICE_ISA
