#include "kernels/cpu/cpu_kernels.h"

namespace sluice {

CpuKernels::CpuKernels(const cpu::Ops& ops, Compute compute, ThreadPool& pool,
                       std::span<std::byte> workspace, bool fetch_into_l1)
    : ops_(ops),
      compute_(compute),
      pool_(pool),
      workspace_(workspace),
      fetch_into_l1_(fetch_into_l1) {
  check(reinterpret_cast<uintptr_t>(workspace.data()) % 64 == 0, "workspace is 64-byte aligned");
}

std::byte* CpuKernels::scratch(int64_t bytes) const {
  check(static_cast<uint64_t>(bytes) <= workspace_.size(), "workspace as cpu_workspace_bytes says");
  return workspace_.data();
}

}  // namespace sluice
