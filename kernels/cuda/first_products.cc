#include "kernels/cuda/first_products.h"

#include "src/base/units.h"

namespace sluice::cuda {
namespace {

// A layer's sizes, about: the library chooses its kernels by them.
constexpr int64_t kRows = 512, kSize = 2048;
// Bytes of a square matrix of float32; one of x, w and y each.
constexpr uint64_t kMatrixBytes = kSize * kSize * sizeof(float);

struct Operands {
  std::byte *x, *w, *y;
  std::span<std::byte> workspace;
};

// A refusal is no fault: layers are then computed another way, which says so.
void multiply_once(Gemm& gemm, const Operands& o, Stream stream) {
  const Tensor y{o.y, DType::f32, kRows, kSize, kSize};
  (void)gemm.multiply({reinterpret_cast<uint16_t*>(o.x), kRows, kSize},
                      {reinterpret_cast<uint16_t*>(o.w), kSize, kSize}, y, o.workspace, stream);
  (void)gemm.multiply_i8({reinterpret_cast<int8_t*>(o.x), kRows, kSize},
                         {reinterpret_cast<int8_t*>(o.w), kSize, kSize},
                         reinterpret_cast<int32_t*>(o.y), o.workspace, stream);
  const auto scales_of = [](std::byte* codes) {  // behind them
    return reinterpret_cast<const float*>(codes + kMatrixBytes / 2);
  };
  const E4M3Matrix x{reinterpret_cast<uint8_t*>(o.x), kRows, kSize, scales_of(o.x)};
  const E4M3Matrix w{reinterpret_cast<uint8_t*>(o.w), kSize, kSize, scales_of(o.w)};
  if (gemm.product_of(x, w, y) != E4M3Product::none)
    (void)gemm.multiply_e4m3(x, w, y, o.workspace, stream);
}

}  // namespace

void first_products(Device& device, Gemm& gemm) {
  constexpr uint64_t kBytes = 3 * kMatrixBytes + kGemmWorkspace;
  if (device.free_bytes() < 4 * kBytes) return;
  device.reserve(kBytes);
  {
    Ledger ledger;
    const Buffer memory =
        device.memory(ledger, Use::workspace, "first products", kBytes, Buffer::Touch::now);
    std::byte* at = memory.data();
    const std::unique_ptr<DeviceStream> stream = device.stream();
    multiply_once(gemm,
                  {at + kGemmWorkspace,
                   at + kGemmWorkspace + kMatrixBytes,
                   at + kGemmWorkspace + 2 * kMatrixBytes,
                   {at, kGemmWorkspace}},
                  stream->handle());
    stream->synchronize();
  }
  device.reserve(0);
}

}  // namespace sluice::cuda
