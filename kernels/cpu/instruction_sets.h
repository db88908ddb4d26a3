// The instruction sets that this build knows.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kernels/cpu/ops.h"
#include "kernels/kernels.h"

namespace sluice {

struct InstructionSet {
  Isa isa;
  std::string_view name;
  std::string (*missing)();  // features that this machine lacks for it; "" if none
  const cpu::Ops* ops;       // null: the reference backend, or not compiled for this kind of CPU

  bool supported() const { return missing().empty(); }
};

// Best first.
std::span<const InstructionSet> instruction_sets();
const InstructionSet& find_instruction_set(Isa isa);  // automatic: the best that this machine has

}  // namespace sluice
