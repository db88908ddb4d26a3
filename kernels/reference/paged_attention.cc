#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"
#include "quant/float8.h"

namespace sluice {
namespace {

// Element `d` of what the cache holds for a position of one KV head.
float cached(const std::byte* base, const KvCache& cache, const SequenceChunk& chunk, int64_t head,
             int64_t position, int64_t d) {
  int64_t block = chunk.block_table[static_cast<size_t>(position / cache.block_size)];
  int64_t token = (block * cache.kv_heads + head) * cache.block_size + position % cache.block_size;
  int64_t element = token * cache.head_dim + d;
  if (cache.dtype == DType::f32) {
    float value;
    std::memcpy(&value, base + element * 4, sizeof value);
    return value;
  }
  uint16_t code;
  std::memcpy(&code, base + element * 2, sizeof code);
  return bf16_to_float(code);
}

constexpr int64_t kPartition = 512;  // positions

// out = softmax(scale q K^T) V over positions [0, end), one partition after the other.
void attend(const float* q, const KvCache& cache, const SequenceChunk& chunk, int64_t head,
            int64_t end, float scale, float* out) {
  double largest = -std::numeric_limits<double>::infinity();
  double total = 0;
  std::fill_n(out, cache.head_dim, 0.0f);
  for (int64_t begin = 0; begin < end; begin += kPartition) {
    const int64_t count = std::min(kPartition, end - begin);
    std::array<double, kPartition> p{};
    double top = -std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < count; ++i) {
      double dot = 0;
      for (int64_t d = 0; d < cache.head_dim; ++d) {
        dot += static_cast<double>(q[d]) * cached(cache.keys, cache, chunk, head, begin + i, d);
      }
      p[static_cast<size_t>(i)] = dot * scale;
      top = std::max(top, dot * scale);
    }
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      p[static_cast<size_t>(i)] = std::exp(p[static_cast<size_t>(i)] - top);
      sum += p[static_cast<size_t>(i)];
    }
    const double new_largest = std::max(largest, top);
    const double keep = std::exp(largest - new_largest), take = std::exp(top - new_largest);
    for (int64_t d = 0; d < cache.head_dim; ++d) {
      double partial = 0;
      for (int64_t i = 0; i < count; ++i) {
        partial +=
            p[static_cast<size_t>(i)] * cached(cache.values, cache, chunk, head, begin + i, d);
      }
      out[d] = static_cast<float>(out[d] * keep + partial * take);
    }
    total = total * keep + sum * take;
    largest = new_largest;
  }
  for (int64_t d = 0; d < cache.head_dim; ++d) out[d] = static_cast<float>(out[d] / total);
}

}  // namespace

void ReferenceKernels::paged_attention(Tensor q, const KvCache& cache,
                                       std::span<const SequenceChunk> chunks, float scale,
                                       Tensor out) const {
  check_paged_attention(q, cache, chunks, out);
  const int64_t heads = q.cols / cache.head_dim;
  for (const SequenceChunk& chunk : chunks) {
    for (int64_t i = 0; i < chunk.rows; ++i) {
      for (int64_t h = 0; h < heads; ++h) {
        int64_t at = h * cache.head_dim;
        attend(q.row<float>(chunk.first_row + i) + at, cache, chunk, h / (heads / cache.kv_heads),
               chunk.first_position + i + 1, scale, out.row<float>(chunk.first_row + i) + at);
      }
    }
  }
}

}  // namespace sluice
