// A device together with what computes on it: all that the rest of the program knows of either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/kernels.h"
#include "quant/matrix_layout.h"
#include "src/device/device.h"

namespace sluice {

// Bytes of the device's memory, and of the host's where that is another.
struct WorkspaceBytes {
  uint64_t device = 0;
  uint64_t host = 0;
};

// Memory of these sizes, each begun on a page's border; host memory is pinned where possible.
struct Workspace {
  std::span<std::byte> device;
  std::span<std::byte> host;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual Device& device() const = 0;
  // Layout of the matrices of linear layers.
  virtual MatrixLayout matrix_layout() const = 0;

  // Throws Error(refused) for a KV cache that the kernels do not support.
  virtual void check_supported(const KvCache& cache) const = 0;

  // Kernels whose ops are work of `stream`. Stream, memory and backend outlive them.
  virtual WorkspaceBytes kernels_bytes(const WorkspaceNeeds& needs) const = 0;
  virtual std::unique_ptr<Kernels> kernels(Compute compute, const WorkspaceNeeds& needs,
                                           DeviceStream& stream, const Workspace& memory) const = 0;

  // Encodes sources of at most `slot_bytes`.
  virtual WorkspaceBytes encoder_bytes(uint64_t slot_bytes) const = 0;
  virtual std::unique_ptr<Encoder> encoder(uint64_t slot_bytes, const Workspace& memory) const = 0;

  // Writes a packed weight, of whole panels, in plain rows, which its format has on the device.
  // Both are in the device's memory; work of `stream`. Only for devices with memory of their own.
  virtual void unpack(const Weight& /*packed*/, const Weight& /*to*/,
                      DeviceStream& /*stream*/) const {
    check(false, "unpack: a device whose matrices are not packed");
  }
};

// The CPU. The pool outlives it.
std::unique_ptr<Backend> make_cpu_backend(Isa isa, ThreadPool& pool);

}  // namespace sluice
