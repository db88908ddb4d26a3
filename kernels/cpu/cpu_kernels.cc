#include "kernels/cpu/cpu_kernels.h"

#include "kernels/cpu/features.h"

namespace sluice {

CpuKernels::CpuKernels(const cpu::Ops& ops, Compute compute, ThreadPool& pool,
                       std::span<std::byte> workspace)
    : ops_(ops),
      fetch_into_l1_(fetches_into_l1()),
      compute_(compute),
      pool_(pool),
      workspace_(workspace) {
  check(reinterpret_cast<uintptr_t>(workspace.data()) % 64 == 0, "workspace is 64-byte aligned");
}

std::byte* CpuKernels::scratch(int64_t bytes) const {
  check(static_cast<uint64_t>(bytes) <= workspace_.size(), "workspace as cpu_workspace_bytes says");
  return workspace_.data();
}

}  // namespace sluice
