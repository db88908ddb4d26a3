// Keys and values into their blocks, and blocks that are copied.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "quant/float8.h"
#include "tests/kernels/cuda/device.h"

namespace sluice {
namespace {

using test::Buffer;
using test::DeviceMatrix;
using test::Matrix;
using test::Random;
using test::stream;

struct Shape {
  int64_t heads, key_dim, block_size, value_dim;
};
constexpr int64_t kBlocks = 5;

struct Cache {
  Cache(const Shape& s, DType dtype, float scale) {
    view = {.dtype = dtype,
            .blocks = kBlocks,
            .block_size = s.block_size,
            .kv_heads = s.heads,
            .key_dim = s.key_dim,
            .value_dim = s.value_dim,
            .key_scale = scale,
            .value_scale = 2 * scale};
    view.block_stride = kv_block_bytes(view) + 8;
    const size_t bytes = static_cast<size_t>(kBlocks * view.block_stride);
    keys = std::make_unique<Buffer<std::byte>>(bytes);
    values = std::make_unique<Buffer<std::byte>>(bytes);
    view.keys = keys->data();
    view.values = values->data();
  }
  std::unique_ptr<Buffer<std::byte>> keys, values;
  KvCache view;
};

// What the blocks must hold, by plain loops; bytes that nobody writes stay 0xa5.
std::vector<std::byte> expected_blocks(const KvCache& cache, int64_t dim, const Matrix& x,
                                       const std::vector<int64_t>& slots, float layer_scale) {
  const int64_t width = dtype_bytes(cache.dtype);
  std::vector<std::byte> all(static_cast<size_t>(kBlocks * cache.block_stride), std::byte{0xa5});
  auto put = [&](int64_t at, auto code) { std::memcpy(all.data() + at, &code, sizeof code); };
  for (size_t r = 0; r < slots.size(); ++r) {
    if (slots[r] < 0) continue;
    const int64_t block = slots[r] / cache.block_size * cache.block_stride;
    for (int64_t h = 0; h < cache.kv_heads; ++h) {
      const int64_t token = h * cache.block_size + slots[r] % cache.block_size;
      float top = 0;
      for (int64_t d = 0; d < dim; ++d) {
        const float v = x.at(static_cast<int64_t>(r), h * dim + d);
        if (std::isfinite(v)) top = std::max(top, std::abs(v));
      }
      float scale = layer_scale;
      if (width == 1 && scale == 0) {
        scale = top / (cache.dtype == DType::f8_e4m3 ? 448.0f : 57344.0f);
        if (!(scale > 0)) scale = 1;
        put(block + cache.kv_heads * cache.block_size * dim + 4 * token, scale);
      }
      for (int64_t d = 0; d < dim; ++d) {
        const float v = x.at(static_cast<int64_t>(r), h * dim + d);
        const int64_t at = block + (token * dim + d) * width;
        if (cache.dtype == DType::f32) put(at, v);
        if (cache.dtype == DType::bf16) put(at, float_to_bf16(v));
        if (cache.dtype == DType::f8_e4m3) put(at, float_to_e4m3(v / scale));
        if (cache.dtype == DType::f8_e5m2) put(at, float_to_e5m2(v / scale));
      }
    }
  }
  return all;
}

TEST(CudaCache, StoresKeysAndValuesBitForBit) {
  Random random("CudaCache.StoresKeysAndValuesBitForBit");
  for (const Shape& shape : {Shape{1, 8, 2, 8},
                             {3, 40, 16, 40},
                             {8, 128, 32, 128},
                             {5, 256, 4, 256},
                             {6, 72, 1, 72},
                             {2, 24, 16, 16},
                             {3, 16, 8, 64}}) {
    for (auto [dtype, scale] : {std::pair{DType::bf16, 0.0f},
                                {DType::f32, 0.0f},
                                {DType::f8_e4m3, 0.0f},
                                {DType::f8_e4m3, 0.01f},
                                {DType::f8_e5m2, 0.0f},
                                {DType::f8_e5m2, 0.5f}}) {
      const int64_t rows = std::min<int64_t>(kBlocks * shape.block_size, 7);
      Matrix k = Matrix::random(rows, shape.heads * shape.key_dim, random);
      Matrix v = Matrix::random(rows, shape.heads * shape.value_dim, random);
      for (int64_t d = 0; d < shape.key_dim; ++d) k.at(1, d) = 0;  // a scale of 1
      k.at(2, 3) = std::numeric_limits<float>::quiet_NaN();
      k.at(3, 3) = std::numeric_limits<float>::infinity();
      v.at(1, 5) = std::numeric_limits<float>::max();
      std::vector<int64_t> slots(static_cast<size_t>(kBlocks * shape.block_size));
      std::iota(slots.begin(), slots.end(), 0);
      std::shuffle(slots.begin(), slots.end(), random.engine());
      slots.resize(static_cast<size_t>(rows));
      slots.back() = -1;  // a row that is not stored
      Cache cache(shape, dtype, scale);
      DeviceMatrix device_k(k, 3), device_v(v, 0);
      Buffer<int64_t> device_slots(slots);
      cuda::store_kv(device_k.tensor(), device_v.tensor(), device_slots.data(), cache.view,
                     stream());
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << " " << shape.key_dim);
      EXPECT_EQ(cache.keys->copy(), expected_blocks(cache.view, shape.key_dim, k, slots, scale));
      EXPECT_EQ(cache.values->copy(),
                expected_blocks(cache.view, shape.value_dim, v, slots, 2 * scale));
    }
  }
}

// Rotated queries, and blocks that hold rotated keys, as by two ropes and a store.
TEST(CudaCache, RopeAndStoreAreThreeInOne) {
  Random random("CudaCache.RopeAndStoreAreThreeInOne");
  for (auto [shape, heads, rope_dim] : {std::tuple{Shape{1, 8, 2, 8}, 3, 8},
                                        {Shape{2, 128, 16, 128}, 8, 128},
                                        {Shape{3, 80, 16, 64}, 3, 20}}) {
    for (DType dtype : {DType::bf16, DType::f8_e4m3}) {
      for (RopePairing pairing : {RopePairing::halves, RopePairing::neighbours}) {
        const Matrix q = Matrix::random(5, heads * shape.key_dim, random);
        const Matrix k = Matrix::random(5, shape.heads * shape.key_dim, random);
        const Matrix v = Matrix::random(5, shape.heads * shape.value_dim, random);
        DeviceMatrix cos(Matrix::random(5, rope_dim / 2, random), 2);
        DeviceMatrix sin(Matrix::random(5, rope_dim / 2, random), 0);
        Buffer<int64_t> slots(std::vector<int64_t>{7, 0, 3, -1, 4});
        auto made = [&](bool at_once) {
          DeviceMatrix on_q(q, 4), on_k(k, 0), on_v(v, 8);
          Cache cache(shape, dtype, 0);
          if (at_once) {
            cuda::rope_store_kv(on_q.tensor(), on_k.tensor(), on_v.tensor(), pairing, cos.tensor(),
                                sin.tensor(), slots.data(), cache.view, stream());
          } else {
            for (const Tensor& x : {on_q.tensor(), on_k.tensor()})
              cuda::rope(x, shape.key_dim, pairing, cos.tensor(), sin.tensor(), stream());
            cuda::store_kv(on_k.tensor(), on_v.tensor(), slots.data(), cache.view, stream());
          }
          std::vector<float> rotated;
          const Matrix all = on_q.copy();
          for (int64_t r = 0; r < all.rows(); ++r)
            for (int64_t c = 0; c < all.cols(); ++c) rotated.push_back(all.at(r, c));
          return std::tuple{rotated, cache.keys->copy(), cache.values->copy()};
        };
        EXPECT_EQ(made(true), made(false));
      }
    }
  }
}

// The reference kernel and the loops above agree where both are defined.
TEST(CudaCache, StoresWhatTheReferenceStores) {
  Random random("CudaCache.StoresWhatTheReferenceStores");
  const Shape shape{2, 24, 4, 24};
  for (DType dtype : {DType::bf16, DType::f32}) {
    Cache cache(shape, dtype, 0), expected(shape, dtype, 0);
    Matrix k = Matrix::random(6, 48, random), v = Matrix::random(6, 48, random);
    const std::vector<int64_t> slots = {7, 0, 19, 4, 5, 12};
    DeviceMatrix device_k(k, 0), device_v(v, 0);
    Buffer<int64_t> device_slots(slots);
    cuda::store_kv(device_k.tensor(), device_v.tensor(), device_slots.data(), cache.view, stream());
    KvCache host = expected.view;
    host.keys = expected.keys->host();
    host.values = expected.values->host();
    ReferenceKernels(Compute::bf16).store_kv(k.tensor(), v.tensor(), slots, host);
    EXPECT_EQ(cache.keys->copy(), expected.keys->copy());
    EXPECT_EQ(cache.values->copy(), expected.values->copy());
  }
}

}  // namespace
}  // namespace sluice
