// The instruction sets that this build knows.
#pragma once

#include <span>
#include <string_view>

#include "kernels/cpu/ops.h"
#include "kernels/kernels.h"

namespace sluice {

struct InstructionSet {
  Isa isa;
  std::string_view name;
  bool (*supported)();  // by this machine
  const cpu::Ops* ops;  // null: the reference backend, or not compiled for this kind of CPU
};

// Best first.
std::span<const InstructionSet> instruction_sets();
const InstructionSet& find_instruction_set(Isa isa);  // automatic: the best that this machine has

}  // namespace sluice
