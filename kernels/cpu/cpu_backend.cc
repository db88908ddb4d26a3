#include "kernels/backend.h"
#include "src/device/host_device.h"

namespace sluice {
namespace {

class CpuBackend final : public Backend {
 public:
  CpuBackend(Isa isa, ThreadPool& pool) : isa_(isa), pool_(pool), device_(make_host_device()) {}

  Device& device() const override { return *device_; }
  MatrixLayout matrix_layout() const override { return MatrixLayout::packed; }
  void check_supported(const KvCache&) const override {}  // all that a checkpoint may have

  WorkspaceBytes kernels_bytes(const WorkspaceNeeds& needs) const override {
    return {cpu_workspace_bytes(needs, pool_.size()), 0};
  }
  std::unique_ptr<Kernels> kernels(Compute compute, const WorkspaceNeeds&, DeviceStream&,
                                   const Workspace& memory) const override {
    return make_cpu_kernels(isa_, compute, pool_, memory.device);
  }

  WorkspaceBytes encoder_bytes(uint64_t) const override { return {}; }
  std::unique_ptr<Encoder> encoder(uint64_t, const Workspace&) const override {
    return make_cpu_encoder(isa_);
  }

 private:
  Isa isa_;
  ThreadPool& pool_;
  std::unique_ptr<Device> device_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(Isa isa, ThreadPool& pool) {
  return std::make_unique<CpuBackend>(isa, pool);
}

}  // namespace sluice
