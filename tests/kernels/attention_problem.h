// Caches filled with random tokens, and questions about them, for the tests of attention.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "quant/float8.h"
#include "tests/kernels/backend.h"

namespace sluice::test {

struct AttentionShape {
  int64_t key_dim, kv_heads, group, block_size;
  int64_t value_dim = 0;  // 0: as key_dim
  bool latent = false;
  int64_t values() const { return value_dim > 0 ? value_dim : key_dim; }
};

// A cache whose blocks are handed out in random order and hold NaN where no token was stored. They
// lie in pages, behind the keys and values of another layer.
struct Cache {
  // `scale` > 0: FP8 with scales of the checkpoint, this and its half.
  Cache(const AttentionShape& s, DType dtype, int64_t positions, Random& random, float scale = 0) {
    view.dtype = dtype;
    view.block_size = s.block_size;
    view.kv_heads = s.kv_heads;
    view.key_dim = s.key_dim;
    view.value_dim = s.values();
    view.latent = s.latent;
    view.blocks = ceil_div(positions, s.block_size) + 3;
    if (is_float8(dtype)) {
      view.key_scale = scale;
      view.value_scale = s.latent ? scale : scale / 2;
    }
    view.block_stride = 2 * kv_block_bytes(view);
    bytes = static_cast<uint64_t>(view.blocks * view.block_stride);
    pages = aligned_bytes(bytes);
    std::memset(pages.get(), 0xff, bytes);
    view.keys = pages.get() + kv_block_bytes(view);
    view.values = s.latent ? view.keys : view.keys + kv_key_bytes(view);
    table.resize(static_cast<size_t>(view.blocks));
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), random.engine());
  }
  int64_t slot(int64_t position) const {
    return table[static_cast<size_t>(position / view.block_size)] * view.block_size +
           position % view.block_size;
  }
  void store(const Kernels& kernels, Matrix& k, Matrix& v, int64_t positions) {
    std::vector<int64_t> slots;
    for (int64_t p = 0; p < positions; ++p) slots.push_back(slot(p));
    kernels.store_kv(k.tensor(), v.tensor(), slots, view);
  }
  // NaN for everything that a position has.
  void forget(int64_t position) {
    const int64_t token = slot(position);
    const int64_t at = token / view.block_size * view.block_stride;
    const int64_t in_block = token % view.block_size;
    for (int64_t h = 0; h < view.kv_heads; ++h) {
      for (auto [base, dim] :
           {std::pair{view.keys, view.key_dim}, std::pair{view.values, kv_value_row(view)}}) {
        std::memset(base + at + kv_element_offset(view, dim, h, in_block), 0xff,
                    static_cast<size_t>(dim * dtype_bytes(view.dtype)));
        if (kv_stores_scales(view))
          std::memset(base + at + kv_scale_offset(view, dim, h, in_block), 0xff, 4);
      }
    }
  }
  SequenceChunk chunk(int64_t first_row, int64_t rows, int64_t first_position) const {
    return {first_row, rows, first_position, table};
  }
  uint64_t bytes = 0;
  AlignedBytes pages;
  KvCache view;
  std::vector<int32_t> table;
};

inline WorkspaceNeeds attention_needs(const AttentionShape& s, int64_t rows, int64_t context) {
  return {.max_rows = rows,
          .max_cols = 1,
          .key_dim = s.key_dim,
          .value_dim = s.values(),
          .heads = s.kv_heads * s.group,
          .sequences = 4,
          .longest = context + 3 * s.block_size,  // as long as the tables of caches
          .block_size = s.block_size};
}

// Tolerances of attention beside the reference. With bf16 products a weight in the middle of two
// bf16 numbers may be rounded to either, which are up to 2^-7 of it apart. With two or more
// weights, the largest being 1 and thus exact, that moves the mean of values (of a normal
// distribution: 5 at most) by up to 5/3 * 2^-7; with hundreds, by far less.
constexpr float kFloat32Tolerance = 3e-5f;
constexpr float kFewWeightsTolerance = 5.0f / 3 / 128;
constexpr float kManyWeightsTolerance = 2e-4f;
// A GPU rounds nothing where it computes few rows, and beside many the weights alone: at most 1,
// to 8 bits, then they multiply values of a few units. The reference that it is compared with
// rounds nothing.
constexpr float kGpuTolerance = 5e-5f;
constexpr float kGpuPrefillTolerance = 0.012f;
constexpr int64_t kGpuPrefillRows = 16;

// A layer's features of attention.
struct Features {
  int64_t window = 0;
  int64_t chunk = 0;
  float soft_cap = 0;
  bool alibi = false;
  bool sinks = false;
  float cache_scale = 0;
};

// One sequence of `context` tokens of which the last `rows` are queried.
struct Problem {
  Problem(const AttentionShape& s, DType dtype, int64_t context_, int64_t rows_, Random& random,
          const Features& features = {})
      : shape(s),
        context(context_),
        rows(rows_),
        cache(s, dtype, context_, random, features.cache_scale),
        q(Matrix::random(rows_, s.kv_heads * s.group * s.key_dim, random)) {
    Matrix k = Matrix::random(context, s.kv_heads * s.key_dim, random);
    Matrix v = Matrix::random(context, s.kv_heads * s.values(), random);
    Backend reference(Isa::reference, Compute::bf16, {});
    cache.store(*reference.kernels, k, v, context);
    const int64_t heads = s.kv_heads * s.group;
    for (int64_t h = 0; h < heads; ++h) {
      slopes.push_back(std::exp2(-8 * static_cast<float>(h + 1) / static_cast<float>(heads)));
      sinks.push_back(random.normal(2));
    }
    params.scale = 1 / std::sqrt(static_cast<float>(shape.key_dim));
    params.window = features.window;
    params.chunk = features.chunk;
    params.soft_cap = features.soft_cap;
    if (features.alibi) params.alibi_slopes = slopes;
    if (features.sinks) params.sinks = sinks;
  }
  Problem(const Problem&) = delete;
  WorkspaceNeeds needs() const { return attention_needs(shape, rows, context); }

  // Rows [begin, end), in chunks that end at the cuts between. With holes, positions that the first
  // row of a chunk cannot see have no block.
  Matrix attend(const Backend& backend, std::vector<int64_t> cuts, int64_t begin, int64_t end,
                bool holes) {
    Matrix out(end - begin, shape.kv_heads * shape.group * shape.values());
    std::vector<SequenceChunk> chunks;
    cuts.push_back(end);
    std::vector<std::vector<int32_t>> tables(cuts.size(), cache.table);
    for (int64_t at = begin; int64_t cut : cuts) {
      const int64_t position = context - rows + at;
      std::vector<int32_t>& table = tables[chunks.size()];
      const int64_t unseen = holes ? first_attended(params, position) : 0;
      for (int64_t b = 0; (b + 1) * shape.block_size <= unseen; ++b) {
        table[static_cast<size_t>(b)] = -1;
      }
      chunks.push_back({at - begin, cut - at, position, table});
      at = cut;
    }
    backend->paged_attention(q.tensor().rows_from(begin, end - begin), cache.view, {chunks, {}},
                             params, out.tensor());
    return out;
  }
  Matrix attend(const Backend& backend, std::vector<int64_t> cuts = {}) {
    return attend(backend, std::move(cuts), 0, rows, false);
  }

  AttentionShape shape;
  int64_t context, rows;
  Cache cache;
  Matrix q;
  std::vector<float> slopes, sinks;  // [heads]
  AttentionParams params;
};

// Tensor cores take queries of bf16.
inline void round_queries(Problem& problem) {
  for (int64_t r = 0; r < problem.rows; ++r) {
    for (int64_t c = 0; c < problem.q.cols(); ++c)
      problem.q.at(r, c) = bf16_to_float(float_to_bf16(problem.q.at(r, c)));
  }
}

inline void expect_the_reference_on_a_gpu(const Target& target, Problem& problem) {
  const bool prefill = problem.rows >= kGpuPrefillRows && problem.cache.view.dtype != DType::f32;
  if (prefill) round_queries(problem);
  Backend reference(Isa::reference, Compute::f32, {});
  Backend backend(target, Compute::bf16, problem.needs());
  const float most = prefill ? kGpuPrefillTolerance : kGpuTolerance;
  expect_near(problem.attend(backend, {}, 0, problem.rows, true), problem.attend(reference), most,
              most / 2);
}

// Compares with products of bf16 and of float32. A cache of float32 is not rounded to bf16 by
// either.
inline void expect_the_reference(const Target& target, Problem& problem,
                                 float tolerated = kFewWeightsTolerance) {
  if (target.gpu != nullptr) return expect_the_reference_on_a_gpu(target, problem);
  for (Compute compute : {Compute::bf16, Compute::f32}) {
    Backend reference(Isa::reference, compute, {});
    Backend backend(target, compute, problem.needs(), 2);
    const bool rounded = compute == Compute::bf16 && problem.cache.view.dtype != DType::f32;
    const float most = rounded ? tolerated : kFloat32Tolerance;
    expect_near(problem.attend(backend, {}, 0, problem.rows, true), problem.attend(reference), most,
                most);
    if (testing::Test::HasFatalFailure()) return;
  }
}

// The type in which a target computes a row as it does beside any others: a GPU in bf16 computes
// many rows of a chunk otherwise than few.
inline Compute same_for_all_rows(const Target& target) {
  return target.gpu == nullptr ? Compute::bf16 : Compute::f32;
}

// Says if a target's kernels take the shape: a GPU's have limits (kernels/cuda/ops.h).
inline bool takes(const Target& target, const AttentionShape& s) {
  auto fits = [](int64_t dim) { return dim % 4 == 0 && dim <= 1024; };
  return target.gpu == nullptr || (fits(s.key_dim) && fits(s.values()));
}

}  // namespace sluice::test
