#include "tests/kernels/cuda/on_device.h"
#include "tests/support/simt/buffer.h"
#include "tests/support/simt/emulated_backend.h"
#include "tests/support/simt/emulator.h"

namespace sluice::test {

struct DeviceBytes::Memory {
  simt::GuardedBytes bytes;
};

DeviceBytes::DeviceBytes(size_t bytes)
    : memory_(std::make_unique<Memory>(simt::GuardedBytes(bytes))) {}
DeviceBytes::~DeviceBytes() = default;
std::byte* DeviceBytes::data() const { return memory_->bytes.data(); }
bool DeviceBytes::intact() const { return memory_->bytes.intact(); }

void order_threads(int order) {
  constexpr simt::Order kOrders[kThreadOrders] = {simt::Order::forward, simt::Order::backward,
                                                  simt::Order::shuffled};
  simt::set_order(kOrders[order], 12345);
}

int64_t launches() { return simt::counts().launches; }

std::unique_ptr<cuda::Gemm> make_gemm(cuda::E4M3Product codes) {
  return simt::make_emulated_gemm(codes);
}

const float kSumRounding = 2e-6f, kE4M3SumRounding = 2e-6f;

}  // namespace sluice::test
