#include "kernels/cuda/cuda_backend.h"

#include <utility>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/encoder.h"
#include "kernels/cuda/unpack.h"
#include "src/base/error.h"

namespace sluice::cuda {
namespace {

class CudaBackend final : public Backend {
 public:
  CudaBackend(std::unique_ptr<Device> device, std::unique_ptr<Gemm> gemm)
      : device_(std::move(device)), gemm_(std::move(gemm)) {}

  Device& device() const override { return *device_; }
  MatrixLayout matrix_layout() const override { return MatrixLayout::by_codes; }

  void check_supported(const KvCache& cache) const override {
    for (int64_t dim : {cache.key_dim, cache.value_dim}) {
      if (dim % kHeadUnit == 0 && dim <= kMostHeadDim) continue;
      fail(ErrorKind::refused,
           "heads of {} elements are not computed by --device cuda: multiples of {} up to {} are; "
           "use --device cpu",
           dim, kHeadUnit, kMostHeadDim);
    }
    if (kv_key_bytes(cache) % kRunBytes != 0 || kv_value_bytes(cache) % kRunBytes != 0)
      fail(ErrorKind::refused,
           "blocks of {} tokens of {} elements are not computed by --device cuda: their bytes are "
           "no multiple of {}; use an even --block-size",
           cache.block_size, cache.key_dim, kRunBytes);
  }

  WorkspaceBytes kernels_bytes(const WorkspaceNeeds& needs) const override {
    return CudaKernels::bytes(needs, gemm_ != nullptr);
  }
  std::unique_ptr<Kernels> kernels(Compute compute, const WorkspaceNeeds& needs,
                                   DeviceStream& stream, const Workspace& memory) const override {
    return std::make_unique<CudaKernels>(*device_, stream, compute, needs, gemm_.get(), memory);
  }

  WorkspaceBytes encoder_bytes(uint64_t slot_bytes) const override {
    return CudaEncoder::bytes(slot_bytes);
  }
  std::unique_ptr<Encoder> encoder(uint64_t slot_bytes, const Workspace& memory) const override {
    return std::make_unique<CudaEncoder>(*device_, slot_bytes, memory);
  }

  // Planes that are not divided into rows are the same in both layouts.
  void unpack(const Weight& packed, const Weight& to, DeviceStream& stream) const override {
    cuda::unpack(packed, to, stream.handle());
    for (Plane plane : kPlanes) {
      if (packed.plane(plane) == nullptr || is_interleaved(packed.format, plane)) continue;
      stream.copy(to.plane(plane), packed.plane(plane),
                  plane_bytes(to.format, plane, to.rows, to.cols));
    }
  }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Gemm> gemm_;
};

}  // namespace

std::unique_ptr<Backend> make_backend(std::unique_ptr<Device> device, std::unique_ptr<Gemm> gemm) {
  return std::make_unique<CudaBackend>(std::move(device), std::move(gemm));
}

}  // namespace sluice::cuda
