// Attention over a paged cache against loops in float64: grouped heads, odd sizes, windows whose
// earlier blocks are gone, soft caps, ALiBi, sinks, and every element type of the cache.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "kernels/cuda/step_rows.h"
#include "quant/float8.h"
#include "tests/kernels/cuda/device.h"

namespace sluice {
namespace {

using test::Buffer;
using test::DeviceMatrix;
using test::in_every_order;
using test::Matrix;
using test::Random;
using test::stream;

struct Shape {
  int64_t key_dim, kv_heads, group, block_size;
  int64_t value_dim = 0;  // 0: as key_dim
  int64_t heads() const { return kv_heads * group; }
  int64_t values() const { return value_dim > 0 ? value_dim : key_dim; }
};

struct Features {
  int64_t window = 0;
  float soft_cap = 0;
  bool alibi = false, sinks = false;
  int64_t chunk = 0;
};

// Sequences in one cache whose blocks are handed out at random. Blocks that nobody may read hold
// NaN, those before a window are -1.
struct Problem {
  Problem(const Shape& s, DType dtype, float layer_scale, const Features& f,
          std::vector<int64_t> contexts_, Random& random)
      : shape(s), features(f), contexts(std::move(contexts_)) {
    cache.dtype = dtype;
    cache.block_size = s.block_size;
    cache.kv_heads = s.kv_heads;
    cache.key_dim = s.key_dim;
    cache.value_dim = s.values();
    cache.key_scale = layer_scale;
    cache.value_scale = layer_scale * 2;
    stride = 0;
    for (int64_t c : contexts) {
      stride = std::max(stride, ceil_div(c, s.block_size));
      cache.blocks += ceil_div(c, s.block_size);
    }
    ++cache.blocks;
    cache.block_stride = kv_block_bytes(cache);
    const size_t bytes = static_cast<size_t>(cache.blocks * cache.block_stride);
    keys = std::make_unique<Buffer<std::byte>>(bytes);
    values = std::make_unique<Buffer<std::byte>>(bytes);
    cache.keys = keys->data();
    cache.values = values->data();
    std::ranges::fill(keys->span(), std::byte{0xff});
    std::ranges::fill(values->span(), std::byte{0xff});
    table = std::make_unique<Buffer<int32_t>>(contexts.size() * static_cast<size_t>(stride));
    std::vector<int32_t> blocks(static_cast<size_t>(cache.blocks));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random.engine());
    for (int32_t& b : table->span()) b = -1;
    for (size_t i = 0; i < contexts.size(); ++i) store(i, blocks, random);
    for (int64_t h = 0; h < s.heads(); ++h) {
      slopes.push_back(-0.3f * static_cast<float>(random.uniform()));
      sinks.push_back(random.normal(2));
    }
  }

  void store(size_t sequence, std::vector<int32_t>& blocks, Random& random) {
    const int64_t context = contexts[sequence];
    Matrix k = Matrix::random(context, shape.kv_heads * shape.key_dim, random);
    Matrix v = Matrix::random(context, shape.kv_heads * shape.values(), random);
    Buffer<int64_t> slots(static_cast<size_t>(context));
    int32_t* row = table->host() + static_cast<int64_t>(sequence) * stride;
    for (int64_t b = 0; b < ceil_div(context, shape.block_size); ++b) {
      row[b] = blocks.back();
      blocks.pop_back();
    }
    for (int64_t p = 0; p < context; ++p) {
      slots[static_cast<size_t>(p)] =
          row[p / shape.block_size] * shape.block_size + p % shape.block_size;
    }
    DeviceMatrix device_k(k, 0), device_v(v, 0);
    cuda::store_kv(device_k.tensor(), device_v.tensor(), slots.data(), cache, stream());
  }

  // Nobody attends to what lies before the window or chunk of a row at `position`.
  void forget_before(size_t sequence, int64_t position) {
    const int64_t first = first_attended(features.window, features.chunk, position);
    std::fill_n(table->host() + static_cast<int64_t>(sequence) * stride, first / shape.block_size,
                -1);
  }

  cuda::BlockTables tables() const { return {table->data(), stride}; }
  cuda::AttentionSettings settings(const Buffer<float>& device_slopes,
                                   const Buffer<float>& device_sinks) const {
    return {scale,
            features.window,
            features.chunk,
            features.soft_cap,
            features.alibi ? device_slopes.data() : nullptr,
            features.sinks ? device_sinks.data() : nullptr};
  }

  double element(const std::byte* base, int64_t dim, float layer_scale, size_t sequence,
                 int64_t head, int64_t position, int64_t d) const {
    const int64_t block = (*table)[sequence * static_cast<size_t>(stride) +
                                   static_cast<size_t>(position / shape.block_size)];
    const int64_t token = head * shape.block_size + position % shape.block_size;
    const std::byte* at = base + block * cache.block_stride;
    const int64_t i = token * dim + d;
    if (cache.dtype == DType::f32) return reinterpret_cast<const float*>(at)[i];
    if (cache.dtype == DType::bf16) return bf16_to_float(reinterpret_cast<const uint16_t*>(at)[i]);
    const auto code = std::to_integer<uint8_t>(at[i]);
    const int64_t elements = shape.kv_heads * shape.block_size * dim;
    const float stored =
        layer_scale > 0 ? layer_scale : reinterpret_cast<const float*>(at + elements)[token];
    return static_cast<double>(stored) *
           (cache.dtype == DType::f8_e4m3 ? e4m3_to_float(code) : e5m2_to_float(code));
  }

  // One head of one row: softmax(score(q K^T)) V.
  void attend(const float* q, size_t sequence, int64_t head, int64_t position, float* out) const {
    const int64_t first = first_attended(features.window, features.chunk, position);
    const auto h = static_cast<size_t>(head);
    const double sink = features.sinks ? sinks[h] : -std::numeric_limits<double>::infinity();
    std::vector<double> p;
    double top = sink;
    for (int64_t k = first; k <= position; ++k) {
      double dot = 0;
      for (int64_t d = 0; d < shape.key_dim; ++d) {
        dot += q[d] * element(keys->host(), shape.key_dim, cache.key_scale, sequence,
                              head / shape.group, k, d);
      }
      dot *= scale;
      if (features.soft_cap > 0) dot = features.soft_cap * std::tanh(dot / features.soft_cap);
      if (features.alibi) dot += slopes[h] * static_cast<double>(k - position);
      p.push_back(dot);
      top = std::max(top, dot);
    }
    double sum = std::exp(sink - top);
    for (double& x : p) sum += x = std::exp(x - top);
    for (int64_t d = 0; d < shape.values(); ++d) {
      double total = 0;
      for (int64_t k = first; k <= position; ++k) {
        total += p[static_cast<size_t>(k - first)] * element(values->host(), shape.values(),
                                                             cache.value_scale, sequence,
                                                             head / shape.group, k, d);
      }
      out[d] = static_cast<float>(total / sum);
    }
  }

  Shape shape;
  Features features;
  std::vector<int64_t> contexts;
  KvCache cache;
  std::unique_ptr<Buffer<std::byte>> keys, values;
  std::unique_ptr<Buffer<int32_t>> table;
  int64_t stride;
  std::vector<float> slopes, sinks;
  float scale = 0.2f;
};

// `longer`: than needed, what it is launched for.
Matrix decode(const Problem& p, const Matrix& q, const std::vector<int32_t>& sequences,
              const std::vector<int32_t>& positions, int64_t longer = 0) {
  Buffer<int32_t> device_sequences(sequences), device_positions(positions);
  Buffer<float> slopes(p.slopes), sinks(p.sinks);
  DeviceMatrix from(q, 1), to(q.rows(), p.shape.heads() * p.shape.values(), 5);
  const int64_t longest = *std::max_element(positions.begin(), positions.end()) + 1 + longer;
  Buffer<std::byte> workspace(
      cuda::decode_workspace_bytes(q.rows(), p.shape.heads(), p.shape.values(), longest));
  cuda::attention_decode(from.tensor(), p.cache, p.tables(),
                         {device_sequences.data(), device_positions.data(), longest},
                         p.settings(slopes, sinks), workspace.data(), to.tensor(), stream());
  EXPECT_TRUE(to.gaps_untouched());
  return to.copy();
}

// The last token of each sequence.
void check_decode(Problem& p, Random& random) {
  const auto rows = static_cast<int64_t>(p.contexts.size());
  Matrix q = Matrix::random(rows, p.shape.heads() * p.shape.key_dim, random);
  Matrix expected(rows, p.shape.heads() * p.shape.values());
  std::vector<int32_t> sequences, positions;
  for (int64_t r = 0; r < rows; ++r) {
    const auto sequence = static_cast<size_t>(rows - 1 - r);  // rows in another order
    sequences.push_back(static_cast<int32_t>(sequence));
    positions.push_back(static_cast<int32_t>(p.contexts[sequence] - 1));
    p.forget_before(sequence, positions.back());
    for (int64_t h = 0; h < p.shape.heads(); ++h) {
      p.attend(&q.at(r, h * p.shape.key_dim), sequence, h, positions.back(),
               &expected.at(r, h * p.shape.values()));
    }
  }
  Matrix out = in_every_order([&] { return decode(p, q, sequences, positions); });
  expect_near(out, expected, 5e-5f, 1e-5f);
  EXPECT_TRUE(same_bits(out, decode(p, q, sequences, positions, 3 * cuda::kPartition)));
}

const std::vector<std::pair<DType, float>>& cache_types() {
  static const std::vector<std::pair<DType, float>> types = {
      {DType::bf16, 0.0f},       {DType::f32, 0.0f},     {DType::f8_e4m3, 0.0f},
      {DType::f8_e4m3, 0.0123f}, {DType::f8_e5m2, 0.0f}, {DType::f8_e5m2, 0.5f}};
  return types;
}

const std::vector<Features>& all_features() {
  static const std::vector<Features> features = {
      {},
      {.window = 7},
      {.window = 600},
      {.soft_cap = 1.5f},
      {.alibi = true},
      {.sinks = true},
      {.chunk = 64},
      {.window = 45, .soft_cap = 2, .alibi = true, .sinks = true, .chunk = 100}};
  return features;
}

TEST(CudaAttentionDecode, EqualsFloat64ForEveryCacheType) {
  Random random("CudaAttentionDecode.EqualsFloat64ForEveryCacheType");
  for (const Shape& shape :
       {Shape{8, 1, 1, 2}, Shape{40, 2, 3, 16}, Shape{128, 1, 8, 32}, Shape{256, 1, 9, 4},
        Shape{80, 2, 2, 1}, Shape{192, 1, 2, 16, 128}, Shape{24, 2, 2, 8, 112}}) {
    for (auto [dtype, scale] : cache_types()) {
      if (test::leaves_out(random)) continue;
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", " << shape.key_dim);
      Problem p(shape, dtype, scale, {}, {1, random.between(2, 40), 47}, random);
      check_decode(p, random);
    }
  }
}

TEST(CudaAttentionDecode, HasAllFeaturesOverSeveralPartitions) {
  Random random("CudaAttentionDecode.HasAllFeaturesOverSeveralPartitions");
  for (const Features& features : all_features()) {
    SCOPED_TRACE(testing::Message()
                 << "window " << features.window << ", chunk " << features.chunk << ", soft cap "
                 << features.soft_cap << ", " << features.alibi << features.sinks);
    Problem p({16, 2, 2, 16}, DType::bf16, 0, features, {1, 7, 8, 512, 513, 1100}, random);
    check_decode(p, random);
  }
}

TEST(CudaAttentionDecode, IsLaunchedForPowersOfTwoOfPartitions) {
  EXPECT_EQ(cuda::launched_length(1, 100000), 512);
  EXPECT_EQ(cuda::launched_length(512, 100000), 512);
  EXPECT_EQ(cuda::launched_length(513, 100000), 1024);
  EXPECT_EQ(cuda::launched_length(2049, 100000), 4096);
  EXPECT_EQ(cuda::launched_length(1025, 1300), 1536);  // none is longer
  EXPECT_EQ(cuda::launched_length(1300, 1300), 1536);
}

// Two chunks of two sequences, the second of which has a past.
void check_prefill(Problem& p, int64_t past, Random& random) {
  const int64_t rows = p.contexts[0] + p.contexts[1] - past;
  Matrix q = Matrix::random(rows, p.shape.heads() * p.shape.key_dim, random);
  Matrix expected(rows, p.shape.heads() * p.shape.values());
  std::vector<cuda::PrefillChunk> chunks(2);
  chunks[0] = {static_cast<int32_t>(p.contexts[1] - past), static_cast<int32_t>(p.contexts[0]), 0,
               0};
  chunks[1] = {0, static_cast<int32_t>(p.contexts[1] - past), static_cast<int32_t>(past), 1};
  p.forget_before(1, past);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < q.cols(); ++c) {  // as the kernel rounds it
      q.at(r, c) = bf16_to_float(float_to_bf16(q.at(r, c)));
    }
  }
  for (const cuda::PrefillChunk& chunk : chunks) {
    for (int64_t r = 0; r < chunk.rows; ++r) {
      for (int64_t h = 0; h < p.shape.heads(); ++h) {
        const int64_t row = chunk.first_row + r;
        p.attend(&q.at(row, h * p.shape.key_dim), static_cast<size_t>(chunk.sequence), h,
                 chunk.first_position + r, &expected.at(row, h * p.shape.values()));
      }
    }
  }
  Buffer<cuda::PrefillChunk> device_chunks(chunks);
  Buffer<float> slopes(p.slopes), sinks(p.sinks);
  Matrix out = in_every_order([&] {
    DeviceMatrix from(q, 1), to(rows, expected.cols(), 3);
    cuda::attention_prefill(from.tensor(), p.cache, p.tables(), device_chunks.data(), 2,
                            std::max(chunks[0].rows, chunks[1].rows), p.settings(slopes, sinks),
                            to.tensor(), stream());
    EXPECT_TRUE(to.gaps_untouched());
    return to.copy();
  });
  // Weights of at most 1 are rounded to 8 bits, then multiply values of a few units.
  expect_near(out, expected, 0.012f, 0.006f);
}

TEST(CudaAttentionPrefill, EqualsFloat64ForEveryCacheType) {
  Random random("CudaAttentionPrefill.EqualsFloat64ForEveryCacheType");
  for (const Shape& shape :
       {Shape{8, 1, 1, 2}, Shape{64, 2, 2, 16}, Shape{112, 1, 2, 8}, Shape{200, 1, 1, 4},
        Shape{192, 1, 2, 16, 128}, Shape{24, 1, 1, 8, 72}}) {
    for (auto [dtype, scale] : cache_types()) {
      if (dtype == DType::f32) continue;
      if (test::leaves_out(random)) continue;
      SCOPED_TRACE(testing::Message() << dtype_name(dtype) << ", " << shape.key_dim);
      Problem p(shape, dtype, scale, {}, {random.between(1, 30), 75}, random);
      check_prefill(p, 40, random);
    }
  }
}

TEST(CudaAttentionPrefill, HasAllFeaturesOverSeveralTiles) {
  Random random("CudaAttentionPrefill.HasAllFeaturesOverSeveralTiles");
  for (const Features& features : all_features()) {
    SCOPED_TRACE(testing::Message()
                 << "window " << features.window << ", chunk " << features.chunk << ", soft cap "
                 << features.soft_cap << ", " << features.alibi << features.sinks);
    Problem p({16, 1, 2, 16}, DType::bf16, 0, features, {70, 150}, random);
    check_prefill(p, 77, random);
  }
}

}  // namespace
}  // namespace sluice
