// Attention over paged caches, and their keys and values, by every target.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/kernels/attention_problem.h"

namespace sluice {
namespace {

using test::attention_needs;
using test::Backend;
using test::Matrix;
using test::Random;

using test::Cache;
using test::Problem;
using Shape = test::AttentionShape;

class Attention : public test::EveryTarget {};

TEST_P(Attention, EqualsTheReference) {
  Random random("Attention.EqualsTheReference");
  const Shape shapes[] = {{64, 2, 3, 16}, {128, 1, 8, 16}, {80, 2, 1, 16}, {112, 1, 1, 5},
                          {8, 3, 2, 1},   {16, 1, 50, 16}, {40, 1, 15, 24}};
  for (const Shape& shape : shapes) {
    for (DType dtype : {DType::bf16, DType::f32}) {
      const int64_t context = random.between(1, 60);
      const int64_t rows = random.between(1, std::min(context, GetParam().size(60, 20)));
      Problem problem(shape, dtype, context, rows, random);
      SCOPED_TRACE(fmt::format("head_dim {} group {} context {} rows {}", shape.key_dim,
                               shape.group, context, rows));
      expect_the_reference(GetParam(), problem);
      if (HasFatalFailure()) return;
    }
  }
}

// Keys and values of different widths, and values that are the beginnings of their keys (MLA).
TEST_P(Attention, KeysAndValuesDifferInWidth) {
  Random random("Attention.KeysAndValuesDifferInWidth");
  const Shape shapes[] = {{192, 2, 2, 16, 128},    {24, 2, 3, 16, 40},
                          {8, 1, 5, 7, 112},       {576, 1, 16, 16, 512, true},
                          {48, 2, 3, 5, 34, true}, {16, 1, 2, 16, 256}};
  for (const Shape& shape : shapes) {
    for (DType dtype : {DType::bf16, DType::f32, DType::f8_e4m3}) {
      if (!takes(GetParam(), shape) || test::leaves_out(random)) continue;
      const int64_t context = random.between(1, GetParam().size(600, 100)),
                    rows = random.between(1, std::min<int64_t>(context, 12));
      Problem problem(shape, dtype, context, rows, random);
      SCOPED_TRACE(fmt::format("keys {} values {} {} context {} rows {}", shape.key_dim,
                               shape.value_dim, dtype_name(dtype), context, rows));
      expect_the_reference(GetParam(), problem);
      if (HasFatalFailure()) return;
      Backend backend(GetParam(), Compute::bf16, problem.needs(), 3);
      const Matrix whole = problem.attend(backend);
      const int64_t row = random.between(0, rows - 1);
      const Matrix alone = problem.attend(backend, {}, row, row + 1, true);
      for (int64_t c = 0; c < alone.cols(); ++c) ASSERT_EQ(alone.at(0, c), whole.at(row, c));
    }
  }
}

TEST_P(Attention, LongContextsCrossPartitions) {
  Random random("Attention.LongContextsCrossPartitions");
  const Shape shape{32, 2, 2, 16};
  for (int64_t context : {512, 513, 1030, 1541}) {
    const int64_t rows = random.between(1, GetParam().size(20, 3));
    Problem problem(shape, DType::bf16, context, rows, random);
    SCOPED_TRACE(fmt::format("context {} rows {}", context, rows));
    expect_the_reference(GetParam(), problem, test::kManyWeightsTolerance);
    if (HasFatalFailure()) return;
  }
}

TEST_P(Attention, ARowDoesNotDependOnChunkingOrThreads) {
  Random random("Attention.ARowDoesNotDependOnChunkingOrThreads");
  for (const Shape& shape : {Shape{24, 1, 3, 16}, Shape{64, 2, 1, 7}, Shape{16, 1, 14, 16}}) {
    const int64_t context = random.between(1000, 1100) / GetParam().size(1, 2) + 20;
    const int64_t rows = GetParam().size(random.between(20, 40), 4);
    Problem problem(shape, DType::bf16, context, rows, random);
    const Compute compute = same_for_all_rows(GetParam());
    Backend one(GetParam(), compute, problem.needs(), 1);
    Backend three(GetParam(), compute, problem.needs(), 3);
    const Matrix whole = problem.attend(one);
    EXPECT_TRUE(same_bits(problem.attend(three), whole));
    const int64_t cut = random.between(1, rows - 2);
    EXPECT_TRUE(same_bits(problem.attend(three, {cut, random.between(cut + 1, rows - 1)}), whole));
    // Decoding: one row at a time, few enough for partitions to be spread over threads.
    Matrix last(1, problem.q.cols());
    const SequenceChunk chunk = problem.cache.chunk(0, 1, context - 1);
    three->paged_attention(problem.q.tensor().rows_from(rows - 1, 1), problem.cache.view,
                           {{&chunk, 1}, {}}, problem.params, last.tensor());
    for (int64_t c = 0; c < last.cols(); ++c) {
      ASSERT_EQ(last.at(0, c), whole.at(rows - 1, c)) << shape.key_dim;
    }
  }
}

TEST_P(Attention, SequencesOfABatchKeepApart) {
  Random random("Attention.SequencesOfABatchKeepApart");
  const Shape shape{16, 2, 2, 16};
  Cache cache(shape, DType::bf16, 4 * 80, random);
  Backend backend(GetParam(), Compute::bf16, attention_needs(shape, 64, 80), 2);
  // Four sequences take turns in the block list; each decodes one token or prefills some.
  const int64_t lengths[] = {1, 33, 70, 40}, rows[] = {1, 9, 20, 25};
  std::vector<std::vector<int32_t>> tables(4);
  for (size_t b = 0; b < 20; ++b) tables[b % 4].push_back(cache.table[b]);
  Matrix q = Matrix::random(55, 64, random), out(55, 64);
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
  backend->paged_attention(q.tensor(), cache.view, {chunks, {}}, {.scale = 0.25f}, out.tensor());
  Matrix alone(55, 64);
  for (const SequenceChunk& chunk : chunks) {
    backend->paged_attention(q.tensor(), cache.view, {{&chunk, 1}, {}}, {.scale = 0.25f},
                             alone.tensor());
  }
  EXPECT_TRUE(same_bits(out, alone));
  Backend reference(Isa::reference, Compute::bf16, {});
  Matrix expected(55, 64);
  reference->paged_attention(q.tensor(), cache.view, {chunks, {}}, {.scale = 0.25f},
                             expected.tensor());
  expect_near(out, expected, test::kFewWeightsTolerance, 0);
}

TEST_P(Attention, LargeScoresDoNotOverflow) {
  Random random("Attention.LargeScoresDoNotOverflow");
  const Shape shape{16, 1, 1, 16};
  Problem problem(shape, DType::f32, 600, 3, random);
  for (int64_t r = 0; r < 3; ++r) {
    for (int64_t c = 0; c < 16; ++c) problem.q.at(r, c) *= 1000;
  }
  Backend reference(Isa::reference, Compute::bf16, {});
  Backend backend(GetParam(), Compute::bf16, problem.needs());
  // Scores of some thousands carry an error of about 1e-3 in float32.
  expect_near(problem.attend(backend), problem.attend(reference), 2e-2f, 2e-2f);
}

SLUICE_OVER_EVERY_TARGET_AND_TILES(Attention);

class StoreKv : public test::EveryTarget {};

TEST_P(StoreKv, EqualsTheReferenceBitForBit) {
  Random random("StoreKv.EqualsTheReferenceBitForBit");
  Backend reference(Isa::reference, Compute::bf16, {});
  Backend backend(GetParam(), Compute::bf16, {}, 2);
  for (DType dtype : {DType::bf16, DType::f32, DType::f8_e4m3, DType::f8_e5m2}) {
    for (Shape shape : {Shape{8, 3, 1, 16},
                        {40, 3, 1, 16},
                        {64, 3, 1, 16},
                        {112, 3, 1, 16},
                        {24, 3, 1, 16, 16},
                        {16, 3, 1, 16, 40},
                        {72, 3, 1, 16, 64, true}}) {
      for (float scale : {0.0f, 0.01f}) {
        Cache cache(shape, dtype, 50, random, scale), expected(shape, dtype, 50, random, scale);
        expected.table = cache.table;
        Matrix k = Matrix::random(50, 3 * shape.key_dim, random);
        Matrix v = Matrix::random(50, 3 * shape.values(), random);
        k.at(7, 3) = std::numeric_limits<float>::quiet_NaN();
        k.at(8, 3) = std::numeric_limits<float>::infinity();
        k.at(9, 3) = std::numeric_limits<float>::max();
        k.at(10, 3) = std::numeric_limits<float>::denorm_min();
        for (int64_t c = 0; c < v.cols(); ++c) v.at(11, c) = c % 2 == 0 ? 0.0f : -0.0f;
        cache.store(*backend.kernels, k, v, 50);
        expected.store(*reference.kernels, k, v, 50);
        EXPECT_EQ(std::memcmp(cache.pages.get(), expected.pages.get(), cache.bytes), 0);
      }
    }
  }
}

// A token's codes and scales are its own: whatever is stored beside it.
TEST_P(StoreKv, ATokenAloneIsStoredAsInABatch) {
  Random random("StoreKv.ATokenAloneIsStoredAsInABatch");
  Backend backend(GetParam(), Compute::bf16, {}, 2);
  for (DType dtype : {DType::f8_e4m3, DType::f8_e5m2}) {
    const Shape shape{24, 2, 1, 16};
    Cache together(shape, dtype, 30, random), alone(shape, dtype, 30, random);
    alone.table = together.table;
    Matrix k = Matrix::random(30, 48, random), v = Matrix::random(30, 48, random, 100);
    together.store(*backend.kernels, k, v, 30);
    for (int64_t p = 29; p >= 0; --p) {
      const int64_t slot = alone.slot(p);
      backend->store_kv(k.tensor().rows_from(p, 1), v.tensor().rows_from(p, 1), {&slot, 1},
                        alone.view);
    }
    EXPECT_EQ(std::memcmp(together.pages.get(), alone.pages.get(), alone.bytes), 0);
  }
}

// Rotated queries, and blocks that hold rotated keys, as by two ropes and a store.
TEST_P(StoreKv, RopeAndStoreAreThreeInOne) {
  Random random("StoreKv.RopeAndStoreAreThreeInOne");
  Backend backend(GetParam(), Compute::bf16, {}, 2);
  for (auto [shape, rope_dim] : {std::pair{Shape{8, 1, 3, 2}, 8},
                                 {Shape{128, 2, 4, 16}, 128},
                                 {Shape{80, 3, 1, 16, 64}, 20}}) {
    for (DType dtype : {DType::bf16, DType::f8_e4m3}) {
      for (RopePairing pairing : {RopePairing::halves, RopePairing::neighbours}) {
        Matrix q = Matrix::random(5, shape.kv_heads * shape.group * shape.key_dim, random);
        Matrix k = Matrix::random(5, shape.kv_heads * shape.key_dim, random);
        Matrix v = Matrix::random(5, shape.kv_heads * shape.values(), random), rotated = q;
        Matrix cos = Matrix::random(5, rope_dim / 2, random);
        Matrix sin = Matrix::random(5, rope_dim / 2, random);
        Cache cache(shape, dtype, 8, random), expected(shape, dtype, 8, random);
        const std::vector<int64_t> slots{7, 0, 3, 1, 4};
        Matrix keys = k;
        backend->rope_store_kv(q.tensor(), keys.tensor(), v.tensor(), pairing, cos.tensor(),
                               sin.tensor(), slots, cache.view);
        for (Matrix* x : {&rotated, &k})
          backend->rope(x->tensor(), shape.key_dim, pairing, cos.tensor(), sin.tensor());
        backend->store_kv(k.tensor(), v.tensor(), slots, expected.view);
        EXPECT_TRUE(same_bits(q, rotated));
        EXPECT_EQ(std::memcmp(cache.pages.get(), expected.pages.get(), cache.bytes), 0);
      }
    }
  }
}

// A new token, or several of one sequence: the cache and the sums are those of a store before
// attention.
TEST_P(StoreKv, RopeStoreAndAttentionAreTwoInOne) {
  Random random("StoreKv.RopeStoreAndAttentionAreTwoInOne");
  for (const auto& [shape, rope_dim] : {std::pair{Shape{8, 1, 3, 4}, 8},
                                        {Shape{64, 2, 4, 16}, 64},
                                        {Shape{40, 1, 12, 8}, 20},
                                        {Shape{24, 2, 1, 16, 40}, 24}}) {
    for (DType dtype : {DType::bf16, DType::f32, DType::f8_e4m3}) {
      if (test::leaves_out(random)) continue;
      const int64_t length = random.one_of(3) ? random.between(513, 530) : random.between(4, 60);
      const int64_t queries = shape.kv_heads * shape.group;
      Cache cache(shape, dtype, length, random, random.one_of(2) ? 0.02f : 0);
      Matrix old_keys = Matrix::random(length, shape.kv_heads * shape.key_dim, random);
      Matrix old_values = Matrix::random(length, shape.kv_heads * shape.values(), random);
      Backend backend(GetParam(), Compute::bf16, attention_needs(shape, 3, length), 2);
      cache.store(*backend.kernels, old_keys, old_values, length);
      const int64_t rows = random.one_of(3) ? 3 : 1;  // the last tokens
      const std::vector<SequenceChunk> chunks{cache.chunk(0, rows, length - rows)};
      std::vector<int64_t> slots;
      for (int64_t r = 0; r < rows; ++r) slots.push_back(cache.slot(length - rows + r));
      Matrix q = Matrix::random(rows, queries * shape.key_dim, random);
      Matrix k = Matrix::random(rows, shape.kv_heads * shape.key_dim, random);
      Matrix v = Matrix::random(rows, shape.kv_heads * shape.values(), random);
      Matrix cos = Matrix::random(rows, rope_dim / 2, random);
      Matrix sin = Matrix::random(rows, rope_dim / 2, random);
      const AttentionParams params{.scale = 0.2f};
      Matrix out(rows, queries * shape.values()), expected = out;
      Matrix q2 = q, k2 = k;
      const std::vector<std::byte> before(cache.pages.get(), cache.pages.get() + cache.bytes);
      backend->rope_store_kv(q2.tensor(), k2.tensor(), v.tensor(), RopePairing::halves,
                             cos.tensor(), sin.tensor(), slots, cache.view);
      backend->paged_attention(q2.tensor(), cache.view, {chunks, slots}, params, expected.tensor());
      const std::vector<std::byte> stored(cache.pages.get(), cache.pages.get() + cache.bytes);
      std::memcpy(cache.pages.get(), before.data(), cache.bytes);
      backend->rope_store_attend(q.tensor(), k.tensor(), v.tensor(), RopePairing::halves,
                                 cos.tensor(), sin.tensor(), cache.view, {chunks, slots}, params,
                                 out.tensor());
      SCOPED_TRACE(
          fmt::format("{} {} length {} rows {}", shape.key_dim, dtype_name(dtype), length, rows));
      EXPECT_EQ(std::memcmp(cache.pages.get(), stored.data(), cache.bytes), 0);
      EXPECT_TRUE(same_bits(out, expected));
    }
  }
}

TEST_P(StoreKv, AnFp8ScaleMakesTheLargestElementTheLargestCode) {
  Backend backend(GetParam(), Compute::bf16, {});
  Random random("StoreKv.AnFp8ScaleMakesTheLargestElementTheLargestCode");
  Cache cache({8, 1, 1, 16}, DType::f8_e4m3, 2, random);
  Matrix k(2, 8), v(2, 8);
  for (int64_t c = 0; c < 8; ++c) {
    k.at(0, c) = static_cast<float>(c) / 2;
    k.at(1, c) = v.at(0, c) = v.at(1, c) = 0;
  }
  cache.store(*backend.kernels, k, v, 2);
  auto scale = [&](int64_t position) {
    const int64_t slot = cache.slot(position);
    float found = 0;
    std::memcpy(&found,
                cache.view.keys + slot / 16 * cache.view.block_stride +
                    kv_scale_offset(cache.view, 8, 0, slot % 16),
                sizeof found);
    return found;
  };
  EXPECT_EQ(scale(0), 3.5f / 448);
  EXPECT_EQ(scale(1), 1);
  EXPECT_EQ(kv_block_bytes(cache.view), 2 * 16 * (8 + 4));
}

SLUICE_OVER_EVERY_TARGET(StoreKv);

}  // namespace
}  // namespace sluice
