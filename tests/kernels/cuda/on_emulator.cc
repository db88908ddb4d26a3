#include "tests/kernels/cuda/on_device.h"
#include "tests/support/simt/buffer.h"
#include "tests/support/simt/emulated_backend.h"
#include "tests/support/simt/emulator.h"

namespace sluice::test {

namespace {

// Nobody may touch it between a download and the next upload.
class EmulatedMemory final : public DeviceMemory {
 public:
  explicit EmulatedMemory(size_t bytes) : bytes_(bytes) { bytes_.allow(false); }
  ~EmulatedMemory() override { bytes_.allow(true); }
  std::byte* data() const override { return bytes_.data(); }
  void upload(std::span<const std::byte> from) override {
    bytes_.allow(allowed_ = true);
    std::ranges::copy(from, bytes_.data());
  }
  void download(std::span<std::byte> to) override {
    std::copy_n(bytes_.data(), to.size(), to.data());
    bytes_.allow(allowed_ = false);
  }
  bool intact() override {
    bytes_.allow(true);
    const bool is = bytes_.intact();
    bytes_.allow(allowed_);
    return is;
  }

 private:
  simt::GuardedBytes bytes_;
  bool allowed_ = false;
};

}  // namespace

std::unique_ptr<DeviceMemory> device_memory(size_t bytes) {
  return std::make_unique<EmulatedMemory>(bytes);
}

void order_threads(int order) {
  constexpr simt::Order kOrders[kThreadOrders] = {simt::Order::forward, simt::Order::backward,
                                                  simt::Order::shuffled};
  simt::set_order(kOrders[order], 12345);
}

int64_t launches() { return simt::counts().launches; }

std::unique_ptr<cuda::Gemm> make_gemm(cuda::E4M3Product codes) {
  return simt::make_emulated_gemm(codes);
}

std::vector<ProductSize> product_sizes() { return {{48, 384, 20}}; }

const float kSumRounding = 2e-6f, kE4M3SumRounding = 2e-6f;

}  // namespace sluice::test
