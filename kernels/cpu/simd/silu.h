#pragma once

#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

[[maybe_unused]] Vf silu(Vf x) { return x / (1.0f + exp(-x)); }

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
