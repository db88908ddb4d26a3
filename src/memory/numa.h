// Places of memory on machines with several NUMA nodes.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>

namespace sluice {

// Node n is bit n % 64 of word n / 64, as the kernel has it (set_mempolicy(2)).
using NodeMask = std::array<unsigned long, 16>;

// The nodes that memory of this process may come from. None where the process was started with a
// policy of its own (numactl), which then stays, or where a sandbox forbids to ask.
std::optional<NodeMask> nodes_to_choose_from();

// The pages of `memory`, none of which is there yet, will come from these nodes in turns. False:
// the system does not do that.
bool interleave(std::span<std::byte> memory, const NodeMask& nodes);

// Spreads memory that every thread reads over all nodes. On one node nothing changes. It is only
// advice: without it pages come from the node of the thread that first writes them.
void spread_over_nodes(std::span<std::byte> memory);

}  // namespace sluice
