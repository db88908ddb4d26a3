#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "tests/kernels/backend.h"

namespace sluice {
namespace {

using test::Backend;
using test::Matrix;
using test::Random;

struct Shape {
  int64_t head_dim, kv_heads, group, block_size;
};

// A cache whose blocks are handed out in random order and hold NaN where no token was stored.
struct Cache {
  Cache(const Shape& s, DType dtype, int64_t positions, Random& random) {
    view.dtype = dtype;
    view.block_size = s.block_size;
    view.kv_heads = s.kv_heads;
    view.head_dim = s.head_dim;
    view.blocks = ceil_div(positions, s.block_size) + 3;
    bytes = static_cast<uint64_t>(view.blocks * s.block_size * s.kv_heads * s.head_dim *
                                  dtype_bytes(dtype));
    keys = test::aligned_bytes(bytes);
    values = test::aligned_bytes(bytes);
    std::memset(keys.get(), 0xff, bytes);
    std::memset(values.get(), 0xff, bytes);
    view.keys = keys.get();
    view.values = values.get();
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
  SequenceChunk chunk(int64_t first_row, int64_t rows, int64_t first_position) const {
    return {first_row, rows, first_position, table};
  }
  uint64_t bytes = 0;  // of the keys, and of the values
  test::AlignedBytes keys, values;
  KvCache view;
  std::vector<int32_t> table;
};

WorkspaceNeeds needs(const Shape& s, int64_t rows) { return {rows, 1, s.head_dim}; }

// One sequence of `context` tokens of which the last `rows` are queried.
struct Problem {
  Problem(const Shape& s, DType dtype, int64_t context_, int64_t rows_, Random& random)
      : shape(s),
        context(context_),
        rows(rows_),
        cache(s, dtype, context_, random),
        q(Matrix::random(rows_, s.kv_heads * s.group * s.head_dim, random)) {
    Matrix k = Matrix::random(context, s.kv_heads * s.head_dim, random);
    Matrix v = Matrix::random(context, s.kv_heads * s.head_dim, random);
    Backend reference(Isa::reference, Compute::bf16, {});
    cache.store(*reference.kernels, k, v, context);
  }
  float scale() const { return 1 / std::sqrt(static_cast<float>(shape.head_dim)); }
  Matrix attend(const Backend& backend, std::vector<int64_t> cuts = {}) {
    Matrix out(rows, q.cols());
    std::vector<SequenceChunk> chunks;
    cuts.push_back(rows);
    for (int64_t begin = 0; int64_t cut : cuts) {
      chunks.push_back(cache.chunk(begin, cut - begin, context - rows + begin));
      begin = cut;
    }
    backend->paged_attention(q.tensor(), cache.view, chunks, scale(), out.tensor());
    return out;
  }
  Shape shape;
  int64_t context, rows;
  Cache cache;
  Matrix q;
};

class Attention : public test::EveryIsa {};

TEST_P(Attention, EqualsTheReference) {
  Random random("Attention.EqualsTheReference");
  const Shape shapes[] = {{64, 2, 3, 16}, {128, 1, 8, 16}, {80, 2, 1, 16}, {112, 1, 1, 5},
                          {8, 3, 2, 1},   {16, 1, 50, 16}, {40, 1, 15, 24}};
  for (const Shape& shape : shapes) {
    for (DType dtype : {DType::bf16, DType::f32}) {
      const int64_t context = random.between(1, 60), rows = random.between(1, context);
      Problem problem(shape, dtype, context, rows, random);
      SCOPED_TRACE(fmt::format("head_dim {} group {} context {} rows {}", shape.head_dim,
                               shape.group, context, rows));
      Backend reference(Isa::reference, Compute::bf16, {});
      Backend backend(GetParam(), Compute::bf16, needs(shape, rows), 2);
      expect_near(problem.attend(backend), problem.attend(reference), 2e-5f, 2e-5f);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(Attention, LongContextsCrossPartitions) {
  Random random("Attention.LongContextsCrossPartitions");
  const Shape shape{32, 2, 2, 16};
  for (int64_t context : {512, 513, 1030, 1541}) {
    const int64_t rows = random.between(1, 20);
    Problem problem(shape, DType::bf16, context, rows, random);
    SCOPED_TRACE(fmt::format("context {} rows {}", context, rows));
    Backend reference(Isa::reference, Compute::bf16, {});
    Backend backend(GetParam(), Compute::bf16, needs(shape, rows), 2);
    expect_near(problem.attend(backend), problem.attend(reference), 2e-5f, 2e-5f);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Attention, ARowDoesNotDependOnChunkingOrThreads) {
  Random random("Attention.ARowDoesNotDependOnChunkingOrThreads");
  for (const Shape& shape : {Shape{24, 1, 3, 16}, Shape{64, 2, 1, 7}, Shape{16, 1, 14, 16}}) {
    const int64_t context = random.between(1000, 1100), rows = random.between(20, 40);
    Problem problem(shape, DType::bf16, context, rows, random);
    Backend one(GetParam(), Compute::bf16, needs(shape, rows), 1);
    Backend three(GetParam(), Compute::bf16, needs(shape, rows), 3);
    const Matrix whole = problem.attend(one);
    EXPECT_TRUE(same_bits(problem.attend(three), whole));
    const int64_t cut = random.between(1, rows - 2);
    EXPECT_TRUE(same_bits(problem.attend(three, {cut, random.between(cut + 1, rows - 1)}), whole));
    // Decoding: one row at a time, few enough for partitions to be spread over threads.
    Matrix last(1, problem.q.cols());
    const SequenceChunk chunk = problem.cache.chunk(0, 1, context - 1);
    three->paged_attention(problem.q.tensor().rows_from(rows - 1, 1), problem.cache.view,
                           {&chunk, 1}, problem.scale(), last.tensor());
    for (int64_t c = 0; c < last.cols(); ++c) {
      ASSERT_EQ(last.at(0, c), whole.at(rows - 1, c)) << shape.head_dim;
    }
  }
}

TEST_P(Attention, SequencesOfABatchKeepApart) {
  Random random("Attention.SequencesOfABatchKeepApart");
  const Shape shape{16, 2, 2, 16};
  Cache cache(shape, DType::bf16, 4 * 80, random);
  Backend backend(GetParam(), Compute::bf16, needs(shape, 64), 2);
  // Four sequences take turns in the block list; each decodes one token or prefills some.
  const int64_t lengths[] = {1, 70, 33, 16}, rows[] = {1, 1, 9, 16};
  std::vector<std::vector<int32_t>> tables(4);
  for (size_t b = 0; b < 20; ++b) tables[b % 4].push_back(cache.table[b]);
  Matrix q = Matrix::random(1 + 1 + 9 + 16, 64, random), out(27, 64);
  std::vector<SequenceChunk> chunks;
  int64_t row = 0;
  for (size_t s = 0; s < 4; ++s) {
    Matrix k = Matrix::random(lengths[s], 32, random), v = Matrix::random(lengths[s], 32, random);
    std::vector<int64_t> slots;
    for (int64_t p = 0; p < lengths[s]; ++p) {
      slots.push_back(tables[s][static_cast<size_t>(p / 16)] * 16 + p % 16);
    }
    backend->store_kv(k.tensor(), v.tensor(), slots, cache.view);
    chunks.push_back({row, rows[s], lengths[s] - rows[s], tables[s]});
    row += rows[s];
  }
  backend->paged_attention(q.tensor(), cache.view, chunks, 0.25f, out.tensor());
  Matrix alone(27, 64);
  for (const SequenceChunk& chunk : chunks) {
    backend->paged_attention(q.tensor(), cache.view, {&chunk, 1}, 0.25f, alone.tensor());
  }
  EXPECT_TRUE(same_bits(out, alone));
  Backend reference(Isa::reference, Compute::bf16, {});
  Matrix expected(27, 64);
  reference->paged_attention(q.tensor(), cache.view, chunks, 0.25f, expected.tensor());
  expect_near(out, expected, 2e-5f, 2e-5f);
}

TEST_P(Attention, LargeScoresDoNotOverflow) {
  Random random("Attention.LargeScoresDoNotOverflow");
  const Shape shape{16, 1, 1, 16};
  Problem problem(shape, DType::f32, 600, 3, random);
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t c = 0; c < 16; ++c) problem.q.at(r, c) *= 1000;
  }
  Backend reference(Isa::reference, Compute::bf16, {});
  Backend backend(GetParam(), Compute::bf16, needs(shape, 3));
  // Scores of some thousands carry an error of about 1e-3 in float32.
  expect_near(problem.attend(backend), problem.attend(reference), 2e-2f, 2e-2f);
}

SLUICE_OVER_EVERY_ISA(Attention);

class StoreKv : public test::EveryIsa {};

TEST_P(StoreKv, EqualsTheReferenceBitForBit) {
  Random random("StoreKv.EqualsTheReferenceBitForBit");
  Backend reference(Isa::reference, Compute::bf16, {});
  Backend backend(GetParam(), Compute::bf16, {}, 2);
  for (DType dtype : {DType::bf16, DType::f32}) {
    for (int64_t head_dim : {8, 40, 64, 112}) {
      const Shape shape{head_dim, 3, 1, 16};
      Cache cache(shape, dtype, 50, random), expected(shape, dtype, 50, random);
      expected.table = cache.table;
      Matrix k = Matrix::random(50, 3 * head_dim, random);
      Matrix v = Matrix::random(50, 3 * head_dim, random);
      k.at(7, 3) = std::numeric_limits<float>::quiet_NaN();
      k.at(8, 3) = std::numeric_limits<float>::infinity();
      k.at(9, 3) = std::numeric_limits<float>::max();
      cache.store(*backend.kernels, k, v, 50);
      expected.store(*reference.kernels, k, v, 50);
      EXPECT_EQ(std::memcmp(cache.view.keys, expected.view.keys, cache.bytes), 0);
      EXPECT_EQ(std::memcmp(cache.view.values, expected.view.values, cache.bytes), 0);
    }
  }
}

SLUICE_OVER_EVERY_ISA(StoreKv);

}  // namespace
}  // namespace sluice
