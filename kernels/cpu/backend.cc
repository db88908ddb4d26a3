// The CPU's instruction sets, those that this machine has, and their backends.
#include <algorithm>
#include <array>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/features.h"
#include "kernels/cpu/instruction_sets.h"
#include "kernels/reference/reference.h"

namespace sluice {

// One table for each instruction set that this build compiles (kernels/CMakeLists.txt).
namespace cpu::portable {
extern const Ops kOps;
}
#if defined(__x86_64__)
#if !defined(SLUICE_WITHOUT_AVX2)
namespace cpu::avx2 {
extern const Ops kOps;
}
#endif
namespace cpu::avx512_bf16 {
extern const Ops kOps;
}
namespace cpu::amx {
extern const Ops kOps;
}
#endif

namespace {

std::string nothing() { return {}; }

// The tables of this build.
#if defined(__x86_64__)
constexpr const cpu::Ops* kAmx = &cpu::amx::kOps;
constexpr const cpu::Ops* kAvx512 = &cpu::avx512_bf16::kOps;
#else
constexpr const cpu::Ops *kAmx = nullptr, *kAvx512 = nullptr;
#endif
#if defined(__x86_64__) && !defined(SLUICE_WITHOUT_AVX2)
constexpr InstructionSet kAvx2{Isa::avx2, "avx2", missing_for_avx2, &cpu::avx2::kOps};
#else
std::string not_built() { return "it is not in this build"; }
constexpr InstructionSet kAvx2{Isa::avx2, "avx2", not_built, nullptr};
#endif

constexpr std::array kSets{
    InstructionSet{Isa::amx, "amx", missing_for_amx, kAmx},
    InstructionSet{Isa::avx512_bf16, "avx512_bf16", missing_for_avx512_bf16, kAvx512},
    kAvx2,
    InstructionSet{Isa::portable, "portable", nothing, &cpu::portable::kOps},
    InstructionSet{Isa::reference, "reference", nothing, nullptr},
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

std::string isa_missing(Isa isa) { return find_instruction_set(isa).missing(); }

std::vector<Isa> all_isas() {
  std::vector<Isa> isas;
  isas.reserve(kSets.size());
  for (const InstructionSet& set : kSets) isas.push_back(set.isa);
  return isas;
}

std::string_view isa_name(Isa isa) { return find_instruction_set(isa).name; }

std::vector<KernelChoice> kernel_choices(Isa isa) {
  const InstructionSet& set = find_instruction_set(isa);
  const bool tiles = set.isa == Isa::amx;
  // Types without tiles run as avx512_bf16 there (kernels/cpu/amx/ops.h).
  const std::string_view rest = tiles ? "avx512_bf16" : set.name;
  return {{"linear, bf16 weights", set.name},        {"linear, fp8 weights", set.name},
          {"linear, int8 weights", set.name},        {"linear, f32 and f16 weights", rest},
          {"linear, grouped and GGUF blocks", rest}, {"attention, bf16 and fp8 caches", set.name},
          {"attention, f32 caches", rest},           {"norms and element-wise", rest},
          {"convolutions and recurrences", rest},    {"encoding", rest}};
}

uint64_t cpu_workspace_bytes(const WorkspaceNeeds& needs, int threads) {
  const int64_t grouped =
      needs.grouped ? grouped_workspace(needs.max_rows, needs.max_cols, threads) : 0;
  return static_cast<uint64_t>(std::max(
      {linear_workspace(needs.max_rows, needs.max_cols, threads), grouped,
       attention_workspace(needs.key_dim, needs.value_dim, threads),
       choice_workspace(needs.key_dim, needs.chosen, threads), norm_workspace(needs.max_cols),
       scan_workspace(needs.state_keys, threads), heads_workspace(needs.head_cols, threads)}));
}

std::unique_ptr<Kernels> make_cpu_kernels(Isa isa, Compute compute, ThreadPool& pool,
                                          std::span<std::byte> workspace) {
  const InstructionSet& set = find_instruction_set(isa);
  check(set.supported(), "instruction set of this machine");
  if (set.isa == Isa::reference) return std::make_unique<ReferenceKernels>(compute);
  return std::make_unique<CpuKernels>(*set.ops, compute, pool, workspace, fetches_into_l1());
}

std::unique_ptr<Encoder> make_cpu_encoder(Isa isa) {
  const InstructionSet& set = find_instruction_set(isa);
  check(set.supported(), "instruction set of this machine");
  if (set.isa == Isa::reference) return std::make_unique<ReferenceEncoder>();
  return std::make_unique<CpuEncoder>(*set.ops);
}

}  // namespace sluice
