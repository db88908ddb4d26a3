#include "tests/kernels/cpu_targets.h"

#include "tests/kernels/trapped_tiles.h"

#if defined(__x86_64__)
namespace sluice::cpu::emulated_avx512 {  // the code of avx512_bf16 (emulated_avx512.h)
extern const Ops kOps;
}
#endif

namespace sluice::test {

// Sanitized builds take what this machine runs best, and the portable form of the same sources.
std::vector<Target> every_target() {
  const Isa best = find_instruction_set(Isa::automatic).isa;
  std::vector<Target> targets;
  for (Isa isa : all_isas())
    if (!kSanitized || isa == best || isa == Isa::portable) targets.push_back({isa});
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
  targets.push_back({Isa::avx2, &cpu::emulated_avx512::kOps, "emulated_avx512", Isa::avx512_bf16});
#endif
  return targets;
}

std::vector<Target> emulated_tiles() {
  return {
      {Isa::portable, &cpu::portable::kEmulatedAmx, "tiles_over_portable"},
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
      {Isa::avx512_bf16, &cpu::avx512_bf16::kEmulatedAmx, "tiles_over_avx512_bf16"},
      {Isa::avx2, &cpu::emulated_avx512::kEmulatedAmx, "tiles_over_emulated_avx512",
       Isa::avx512_bf16},
      {Isa::avx512_bf16, &cpu::amx::kOps, "trapped_tiles", Isa::amx, &trap_tiles},
#endif
  };
}

std::vector<Target> every_target_and_tiles() {
  std::vector<Target> targets = every_target(), tiles = emulated_tiles();
  targets.insert(targets.end(), tiles.begin(), tiles.end());
  return targets;
}

}  // namespace sluice::test
