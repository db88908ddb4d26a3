#include "src/memory/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>

namespace sluice {
namespace {

constexpr unsigned long kMaxNode = NodeMask{}.size() * 64 + 1;  // the kernel takes one bit less

}  // namespace

std::optional<NodeMask> nodes_to_choose_from() {
  int policy = MPOL_DEFAULT;
  NodeMask nodes{};
  if (syscall(SYS_get_mempolicy, &policy, nullptr, 0, nullptr, 0) != 0) return {};
  if (policy != MPOL_DEFAULT) return {};
  if (syscall(SYS_get_mempolicy, nullptr, nodes.data(), kMaxNode, nullptr, MPOL_F_MEMS_ALLOWED) !=
      0)
    return {};
  return nodes;
}

bool interleave(std::span<std::byte> memory, const NodeMask& nodes) {
  return syscall(SYS_mbind, memory.data(), memory.size(), MPOL_INTERLEAVE, nodes.data(), kMaxNode,
                 0) == 0;
}

void spread_over_nodes(std::span<std::byte> memory) {
  const std::optional<NodeMask> nodes = nodes_to_choose_from();
  if (!nodes) return;
  int count = 0;
  for (unsigned long word : *nodes) count += std::popcount(word);
  if (count > 1) interleave(memory, *nodes);
}

}  // namespace sluice
