// Which instruction sets there are, which of them this machine has, and their backends.
#include <algorithm>
#include <array>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/instruction_sets.h"
#include "kernels/reference/reference.h"

namespace sluice {

// One table for each instruction set that this build compiles (kernels/CMakeLists.txt).
namespace cpu::portable {
extern const Ops kOps;
}
#if defined(__x86_64__)
namespace cpu::avx2 {
extern const Ops kOps;
}
namespace cpu::avx512_bf16 {
extern const Ops kOps;
}
#endif

namespace {

// __builtin_cpu_supports also asks whether the operating system saves the registers.
bool always() { return true; }
bool has_avx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
#else
  return false;
#endif
}
bool has_avx512_bf16() {
#if defined(__x86_64__)
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vbmi") &&
         __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

const std::array kSets{
#if defined(__x86_64__)
    InstructionSet{Isa::avx512_bf16, "avx512_bf16", has_avx512_bf16, &cpu::avx512_bf16::kOps},
    InstructionSet{Isa::avx2, "avx2", has_avx2, &cpu::avx2::kOps},
#else
    InstructionSet{Isa::avx512_bf16, "avx512_bf16", has_avx512_bf16, nullptr},
    InstructionSet{Isa::avx2, "avx2", has_avx2, nullptr},
#endif
    InstructionSet{Isa::portable, "portable", always, &cpu::portable::kOps},
    InstructionSet{Isa::reference, "reference", always, nullptr},
};

}  // namespace

std::span<const InstructionSet> instruction_sets() { return kSets; }

const InstructionSet& find_instruction_set(Isa isa) {
  for (const InstructionSet& set : kSets) {
    if (isa == Isa::automatic ? set.supported() : set.isa == isa) return set;
  }
  return kSets.back();
}

std::optional<Isa> parse_isa(std::string_view name) {
  if (name == "auto") return Isa::automatic;
  for (const InstructionSet& set : kSets) {
    if (set.name == name) return set.isa;
  }
  return std::nullopt;
}

bool isa_supported(Isa isa) { return find_instruction_set(isa).supported(); }

uint64_t cpu_workspace_bytes(const WorkspaceNeeds& needs, int threads) {
  return static_cast<uint64_t>(
      std::max({linear_workspace(needs.max_rows, needs.max_cols, threads),
                attention_workspace(needs.head_dim, threads), norm_workspace(needs.max_cols)}));
}

std::unique_ptr<Kernels> make_cpu_kernels(Isa isa, Compute compute, ThreadPool& pool,
                                          std::span<std::byte> workspace) {
  const InstructionSet& set = find_instruction_set(isa);
  check(set.supported(), "instruction set of this machine");
  if (set.isa == Isa::reference) return std::make_unique<ReferenceKernels>(compute);
  return std::make_unique<CpuKernels>(*set.ops, compute, pool, workspace);
}

}  // namespace sluice
