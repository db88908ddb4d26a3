// Features of attention: FP8 caches, windows, caps, ALiBi, sinks, and all of these together.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <vector>

#include "quant/float8.h"
#include "tests/kernels/attention_problem.h"

namespace sluice {
namespace {

using test::AttentionShape;
using test::Backend;
using test::Features;
using test::Matrix;
using test::Problem;
using test::Random;

constexpr int64_t kHeadSizes[] = {8, 16, 24, 64, 80, 96, 112, 128, 192, 256, 12, 320};
constexpr DType kTypes[] = {DType::bf16, DType::f32, DType::f8_e4m3, DType::f8_e5m2};

// Combination `bits` of [0, 32); windows and chunks that end within blocks and partitions, and
// both.
Features features_of(int bits, int64_t context, Random& random) {
  Features f;
  if ((bits & 1) != 0) {
    const int64_t which = random.between(0, 4);
    if (which < 3) f.window = random.between(1, context + 5);
    if (which > 1) f.chunk = random.between(1, context + 5);
  }
  if ((bits & 2) != 0) f.soft_cap = 1.5f;
  f.alibi = (bits & 4) != 0;
  f.sinks = (bits & 8) != 0;
  if ((bits & 16) != 0) f.cache_scale = 0.03f;
  return f;
}

std::string words(const Features& f, DType dtype, const AttentionShape& s, int64_t context,
                  int64_t rows) {
  return fmt::format(
      "{} head_dim {} KV heads {} group {} block {} context {} rows {} window {} chunk {} "
      "cap {} ALiBi {} sinks {} scale {}",
      dtype_name(dtype), s.key_dim, s.kv_heads, s.group, s.block_size, context, rows, f.window,
      f.chunk, f.soft_cap, f.alibi, f.sinks, f.cache_scale);
}

class AttentionFeatures : public test::EveryTarget {
 protected:
  static AttentionShape random_shape(int64_t head_dim, Random& random) {
    constexpr std::array<int64_t, 6> kGroups{1, 2, 4, 7, 8, 15};  // 1: MHA
    const auto group = static_cast<size_t>(random.between(0, GetParam().size(5, 3)));
    // A GPU takes runs of whole 8 bytes: of 12 elements a token, pairs of them.
    const int64_t unit = GetParam().gpu != nullptr && head_dim % 8 != 0 ? 2 : 1;
    return {head_dim, random.between(1, GetParam().size(3, 2)), kGroups[group],
            random.between(0, 1) == 0 ? 16 : unit * random.between(1, 40)};
  }
  // Rows of which each has a partition's sums of its own: few, as these cases have long contexts.
  static int64_t few_rows(int64_t most, Random& random) {
    return random.between(1, std::min<int64_t>(most, GetParam().size(20, 4)));
  }
};

TEST_P(AttentionFeatures, EqualTheReferenceForAllHeadSizesAndTypes) {
  Random random("AttentionFeatures.EqualTheReferenceForAllHeadSizesAndTypes");
  for (int64_t head_dim : kHeadSizes) {
    for (int bits = 0; bits < 32; ++bits) {
      if (test::leaves_out(random)) continue;
      if (GetParam().gpu != nullptr && !random.one_of(5)) continue;  // 64 of the 320
      const DType dtype = kTypes[random.between(bits < 16 ? 0 : 2, 3)];
      const int64_t context = random.between(1, bits == 7 || bits == 31 ? 700 : 60);
      const int64_t most = GetParam().gpu != nullptr && random.between(0, 2) == 0 ? 40 : 8;
      const int64_t rows = random.between(1, std::min(context, most));
      const AttentionShape shape = random_shape(head_dim, random);
      const Features features = features_of(bits, context, random);
      SCOPED_TRACE(words(features, dtype, shape, context, rows));
      Problem problem(shape, dtype, context, rows, random, features);
      expect_the_reference(GetParam(), problem);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_P(AttentionFeatures, ARowDoesNotDependOnChunkingOrThreads) {
  if (GetParam().isa == Isa::reference) GTEST_SKIP() << "computes one row after the other, alone";
  Random random("AttentionFeatures.ARowDoesNotDependOnChunkingOrThreads");
  for (int bits = 0; bits < 32; ++bits) {
    if (test::leaves_out(random)) continue;
    if (GetParam().gpu != nullptr && bits % 8 != 7) continue;
    const DType dtype = kTypes[random.between(bits < 16 ? 0 : 2, 3)];
    const int64_t context = random.between(500, 1100);
    const int64_t rows = random.between(3, GetParam().size(40, 6));
    const AttentionShape shape = random_shape(kHeadSizes[random.between(0, 5)], random);
    const Features features = features_of(bits, context, random);
    SCOPED_TRACE(words(features, dtype, shape, context, rows));
    Problem problem(shape, dtype, context, rows, random, features);
    const Compute compute = same_for_all_rows(GetParam());
    Backend one(GetParam(), compute, problem.needs(), 1);
    Backend three(GetParam(), compute, problem.needs(), 3);
    const Matrix whole = problem.attend(one);
    ASSERT_TRUE(same_bits(problem.attend(three), whole));
    const int64_t cut = random.between(1, rows - 2);
    ASSERT_TRUE(same_bits(
        problem.attend(three, {cut, random.between(cut + 1, rows - 1)}, 0, rows, true), whole));
    for (int64_t row : {int64_t{0}, rows - 1}) {
      const Matrix alone = problem.attend(three, {}, row, row + 1, true);
      for (int64_t c = 0; c < alone.cols(); ++c) ASSERT_EQ(alone.at(0, c), whole.at(row, c));
    }
  }
}

TEST_P(AttentionFeatures, WhatIsBeforeTheWindowIsNotRead) {
  Random random("AttentionFeatures.WhatIsBeforeTheWindowIsNotRead");
  const int64_t windows[] = {1, 2, 15, 16, 17, 100, 511, 512, 513, 700};
  for (int64_t window : windows) {
    if (GetParam().gpu != nullptr && !random.one_of(3)) continue;
    const DType dtype = kTypes[random.between(0, 3)];
    const int64_t context = random.between(750, 1300), rows = few_rows(20, random);
    const AttentionShape shape = random_shape(kHeadSizes[random.between(0, 4)], random);
    const Features features{.window = window};
    SCOPED_TRACE(words(features, dtype, shape, context, rows));
    Problem problem(shape, dtype, context, rows, random, features);
    Backend backend(GetParam(), Compute::bf16, problem.needs(), 2);
    const Matrix whole = problem.attend(backend);
    for (int64_t p = 0; p < context - rows + 1 - window; ++p) problem.cache.forget(p);
    ASSERT_TRUE(same_bits(problem.attend(backend, {}, 0, rows, true), whole));
    for (int64_t p = 0; p < context - window; ++p) problem.cache.forget(p);
    const Matrix last = problem.attend(backend, {}, rows - 1, rows, true);
    for (int64_t c = 0; c < last.cols(); ++c) ASSERT_EQ(last.at(0, c), whole.at(rows - 1, c));
    // Rows beside it that see forgotten positions are NaN, they alone.
    if (rows == 1) continue;
    const Matrix among = problem.attend(backend, {}, 0, rows, true);
    for (int64_t c = 0; c < among.cols(); ++c) {
      ASSERT_EQ(among.at(rows - 1, c), whole.at(rows - 1, c));
      ASSERT_TRUE(std::isnan(among.at(0, c)));
    }
  }
}

// Covers Llama 4's chunked attention, too: the first token of a chunk sees itself alone.
TEST_P(AttentionFeatures, WhatIsBeforeTheChunkIsNotRead) {
  Random random("AttentionFeatures.WhatIsBeforeTheChunkIsNotRead");
  for (int64_t chunk : {1, 16, 100, 512, 700}) {
    const DType dtype = kTypes[random.between(0, 3)];
    const int64_t begin = chunk * random.between(1, 1200 / chunk);
    const AttentionShape shape = random_shape(kHeadSizes[random.between(0, 4)], random);
    const int64_t rows = few_rows(chunk, random);
    const Features features{.chunk = chunk};
    SCOPED_TRACE(words(features, dtype, shape, begin + rows, rows));
    Problem problem(shape, dtype, begin + rows, rows, random, features);
    Backend backend(GetParam(), Compute::bf16, problem.needs(), 2);
    const Matrix whole = problem.attend(backend);
    for (int64_t p = 0; p < begin; ++p) problem.cache.forget(p);
    ASSERT_TRUE(same_bits(problem.attend(backend, {}, 0, rows, true), whole));
    for (int64_t c = 0; c < whole.cols(); ++c) ASSERT_TRUE(std::isfinite(whole.at(0, c)));
  }
}

TEST_P(AttentionFeatures, AWindowOfOneTokenIsItsValue) {
  Random random("AttentionFeatures.AWindowOfOneTokenIsItsValue");
  const AttentionShape shape{16, 1, 1, 16};
  Problem problem(shape, DType::f32, 20, 1, random, {.window = 1});
  Backend backend(GetParam(), Compute::bf16, problem.needs());
  const Matrix out = problem.attend(backend);
  const int64_t slot = problem.cache.slot(19);
  const KvCache& cache = problem.cache.view;
  const auto* value = reinterpret_cast<const float*>(cache.values + slot / 16 * cache.block_stride +
                                                     kv_element_offset(cache, 16, 0, slot % 16));
  for (int64_t c = 0; c < 16; ++c) EXPECT_EQ(out.at(0, c), value[c]);
}

// With one position in the window, the output is its value: all codes of both types.
TEST_P(AttentionFeatures, CodesAreDecodedExactly) {
  Random random("AttentionFeatures.CodesAreDecodedExactly");
  const AttentionShape shape{256, 1, 1, 1};
  for (DType dtype : {DType::f8_e4m3, DType::f8_e5m2}) {
    Problem problem(shape, dtype, 1, 1, random, {.cache_scale = 2});
    std::byte* codes =
        problem.cache.view.values + problem.cache.slot(0) * problem.cache.view.block_stride;
    for (int c = 0; c < 256; ++c) codes[c] = static_cast<std::byte>(c);
    Backend backend(GetParam(), Compute::bf16, problem.needs());
    const Matrix out = problem.attend(backend);
    for (int c = 0; c < 256; ++c) {
      const auto code = static_cast<uint8_t>(c);
      const float value = dtype == DType::f8_e4m3 ? e4m3_to_float(code) : e5m2_to_float(code);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(out.at(0, c))) << c;
      } else {
        EXPECT_EQ(out.at(0, c), value) << c;
      }
    }
  }
}

// With one position in the window and a sink of 0, the output is its value's share, 1 / (1 +
// e^-score): for all codes of both types as keys, in few rows and in many.
TEST_P(AttentionFeatures, KeysAreDecodedExactly) {
  Random random("AttentionFeatures.KeysAreDecodedExactly");
  const AttentionShape shape{16, 1, 1, 16};
  for (DType dtype : {DType::f8_e4m3, DType::f8_e5m2}) {
    const bool e4m3 = dtype == DType::f8_e4m3;
    Problem problem(shape, dtype, 256, 256, random, {.window = 1, .sinks = true, .cache_scale = 2});
    std::fill(problem.sinks.begin(), problem.sinks.end(), 0.0f);
    for (int c = 0; c < 256; ++c) {
      const KvCache& cache = problem.cache.view;
      const int64_t slot = problem.cache.slot(c);
      const int64_t at =
          slot / 16 * cache.block_stride + kv_element_offset(cache, 16, 0, slot % 16);
      std::memset(cache.keys + at, 0, 16);
      cache.keys[at + c % 16] = static_cast<std::byte>(c);
      std::memset(cache.values + at, e4m3 ? 0x38 : 0x3c, 16);  // 1
      for (int64_t d = 0; d < 16; ++d) problem.q.at(c, d) = 1;
    }
    Backend backend(GetParam(), Compute::bf16, problem.needs());
    // A GPU rounds the weights of many rows; of few it computes some.
    const bool gpu = GetParam().gpu != nullptr;
    for (int exponent : {e4m3 ? -7 : -14, e4m3 ? 8 : 15}) {  // for the large ones, and the small
      problem.params.scale = std::ldexp(1.0f, exponent);
      const Matrix many = problem.attend(backend, {}, 0, 256, true);
      for (int c = 0; c < 256; c += gpu ? 5 : 1) {
        const auto code = static_cast<uint8_t>(c);
        const double key = 2 * (e4m3 ? e4m3_to_float(code) : e5m2_to_float(code));
        const double share = 1 / (1 + std::exp(-std::ldexp(key, exponent)));
        const float few = problem.attend(backend, {}, c, c + 1, true).at(0, 0), all = many.at(c, 0);
        EXPECT_TRUE(few == all || std::isnan(few) == std::isnan(all)) << c;
        if (std::isfinite(key)) {
          EXPECT_NEAR(few, share, 2e-6) << c;
          EXPECT_NEAR(all, few, gpu ? 4e-3 : 0) << c;
        } else {
          EXPECT_TRUE(std::isnan(few) || few == share) << c;
        }
      }
    }
  }
}

TEST_P(AttentionFeatures, ALargeSinkTakesAllAndASmallOneNothing) {
  Random random("AttentionFeatures.ALargeSinkTakesAllAndASmallOneNothing");
  const AttentionShape shape{24, 2, 3, 16};
  Problem problem(shape, DType::bf16, 600, 2, random, {.sinks = true});
  Backend backend(GetParam(), Compute::bf16, problem.needs(), 2);
  std::fill(problem.sinks.begin(), problem.sinks.end(), 1000.0f);
  const Matrix nothing = problem.attend(backend);
  for (int64_t c = 0; c < nothing.cols(); ++c) EXPECT_EQ(nothing.at(1, c), 0);
  std::fill(problem.sinks.begin(), problem.sinks.end(), -1000.0f);
  const Matrix all = problem.attend(backend);
  problem.params.sinks = {};
  EXPECT_TRUE(same_bits(problem.attend(backend), all));
}

SLUICE_OVER_EVERY_TARGET_AND_TILES(AttentionFeatures);

}  // namespace
}  // namespace sluice
