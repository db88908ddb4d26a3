// NVIDIA's NCCL between the GPUs of a group's ranks. The library is loaded at run time
// (libnccl.so.2), so that building and running on one GPU do not need it. It only moves bytes: sums
// are ours (DeviceGroup), so that bits do not depend on its algorithms.
#pragma once

#include <chrono>
#include <memory>

#include "src/nn/device_group.h"

namespace sluice {

inline constexpr const char* kNcclLibrary = "libnccl.so.2";

// Joins the ranks of `group`, each of which has opened a device of its own. Every rank calls it,
// and all throw where one fails: Error(usage) where the library is not there, Error(runtime) for
// what it refuses. Where one fails while the others wait for it in the library, it alone throws,
// and the group is broken. It is broken too where they have not met within `patience`: each that
// still waits then throws. `library`: another than NVIDIA's, for tests.
std::unique_ptr<DeviceLink> join_nccl(const Group& group, Device& device,
                                      std::chrono::seconds patience,
                                      const char* library = kNcclLibrary);

}  // namespace sluice
