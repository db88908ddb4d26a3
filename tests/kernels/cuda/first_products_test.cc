// The products that are made before memory is measured leave nothing behind.
#include "kernels/cuda/first_products.h"

#include <gtest/gtest.h>

#include "tests/support/simt/emulated_device.h"

namespace sluice {
namespace {

// Notes the calls, in place of a library.
class NotedGemm final : public cuda::Gemm {
 public:
  explicit NotedGemm(cuda::E4M3Product codes) : codes_(codes) {}
  bool multiply(const cuda::Bf16Matrix& x, const cuda::Bf16Matrix& w, Tensor y,
                std::span<std::byte> workspace, cuda::Stream stream) override {
    return note("bf16 ", x.cols == w.cols && y.cols == w.rows, workspace, stream);
  }
  cuda::E4M3Product product_of(const cuda::E4M3Matrix& x, const cuda::E4M3Matrix& w,
                               Tensor) override {
    EXPECT_TRUE(x.scales != nullptr && w.scales != nullptr && !x.by_block && !w.by_block);
    return codes_;
  }
  bool multiply_e4m3(const cuda::E4M3Matrix& x, const cuda::E4M3Matrix& w, Tensor y,
                     std::span<std::byte> workspace, cuda::Stream stream) override {
    return note("e4m3 ", x.cols == w.cols && y.cols == w.rows, workspace, stream);
  }
  bool multiply_i8(const cuda::I8Matrix& x, const cuda::I8Matrix& w, int32_t*,
                   std::span<std::byte> workspace, cuda::Stream stream) override {
    note("i8 ", x.cols == w.cols, workspace, stream);
    return false;
  }
  std::string noted;

 private:
  bool note(const char* what, bool fits, std::span<std::byte> workspace, cuda::Stream stream) {
    EXPECT_TRUE(fits && workspace.size() == cuda::kGemmWorkspace && stream != nullptr) << what;
    noted += what;
    return true;
  }
  cuda::E4M3Product codes_;
};

TEST(FirstProducts, AreOneOfEachWayAndGiveTheMemoryBack) {
  const auto device = simt::make_emulated_device({});
  const uint64_t free = device->free_bytes();
  NotedGemm with(cuda::E4M3Product::scaled), without(cuda::E4M3Product::none);
  cuda::first_products(*device, with);
  EXPECT_EQ(with.noted, "bf16 i8 e4m3 ");
  cuda::first_products(*device, without);
  EXPECT_EQ(without.noted, "bf16 i8 ");
  EXPECT_EQ(device->free_bytes(), free);
}

TEST(FirstProducts, LeaveAFullDeviceAlone) {
  const auto device = simt::make_emulated_device({.bytes = uint64_t{64} << 20});
  NotedGemm gemm(cuda::E4M3Product::scaled);
  cuda::first_products(*device, gemm);
  EXPECT_EQ(gemm.noted, "");
}

}  // namespace
}  // namespace sluice
