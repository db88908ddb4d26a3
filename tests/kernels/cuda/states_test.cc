// Convolutions and recurrences against the reference, whose chunks are known from a list or from
// the rows.
#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/cuda/device.h"
#include "tests/kernels/state_problem.h"

namespace sluice {
namespace {

using test::Buffer;
using test::DeviceMatrix;
using test::in_every_order;
using test::Matrix;
using test::Random;
using test::StateStep;
using test::stream;

Buffer<float> random_floats(size_t count, Random& random) {
  std::vector<float> all(count);
  for (float& x : all) x = random.normal();
  return Buffer<float>(all);
}

// A step's chunks as upload() leaves them.
struct DeviceStep {
  explicit DeviceStep(const StateStep& step)
      : tables(tables_of(step)),
        sequences(rows_of(step, 0, [](size_t i, int64_t) { return static_cast<int64_t>(i); })),
        second(rows_of(step, step.chunks[0].size(),
                       [](size_t i, int64_t) { return static_cast<int64_t>(i); })),
        positions(rows_of(
            step, 0, [&](size_t i, int64_t r) { return step.chunks[0][i].first_position + r; })),
        chunks(chunks_of(step)),
        pages(static_cast<int64_t>(step.chunks.size())) {}

  cuda::StateChunks view(bool listed) const {
    cuda::StateChunks view{.tables = tables.data(),
                           .sequences = sequences.data(),
                           .second = pages > 1 ? second.data() : nullptr,
                           .positions = positions.data()};
    if (listed) {
      view.chunks = chunks.data();
      view.count = static_cast<int64_t>(chunks.size());
    }
    return view;
  }

  static std::vector<int32_t> tables_of(const StateStep& step) {
    std::vector<int32_t> all;
    for (const auto& page : step.blocks) all.insert(all.end(), page.begin(), page.end());
    return all;
  }
  template <class Value>
  static std::vector<int32_t> rows_of(const StateStep& step, size_t offset, Value value) {
    std::vector<int32_t> all;
    for (size_t i = 0; i < step.chunks[0].size(); ++i)
      for (int64_t r = 0; r < step.chunks[0][i].rows; ++r)
        all.push_back(static_cast<int32_t>(static_cast<int64_t>(offset) + value(i, r)));
    return all;
  }
  static std::vector<cuda::PrefillChunk> chunks_of(const StateStep& step) {
    std::vector<cuda::PrefillChunk> all;
    for (size_t i = 0; i < step.chunks[0].size(); ++i) {
      const SequenceChunk& c = step.chunks[0][i];
      all.push_back({static_cast<int32_t>(c.first_row), static_cast<int32_t>(c.rows),
                     static_cast<int32_t>(c.first_position), static_cast<int32_t>(i)});
    }
    return all;
  }

  Buffer<int32_t> tables, sequences, second, positions;
  Buffer<cuda::PrefillChunk> chunks;
  int64_t pages;
};

TEST(CudaStates, ConvolutionsEqualTheReference) {
  Random random("CudaStates.ConvolutionsEqualTheReference");
  ReferenceKernels reference(Compute::f32);
  for (int64_t width : {2, 3, 4, 7}) {
    SCOPED_TRACE(testing::Message() << "width " << width);
    const int64_t cols = random.between(1, 300);
    StateStep step(test::state_cache(width - 1, cols, random.between(1, 4), 0),
                   {{1, 7}, {20, 0}, {2, 0}, {1, 9}});
    DeviceStep on_device(step);
    const Matrix x = Matrix::random(step.rows(), cols, random);
    Buffer<float> weight = random_floats(static_cast<size_t>(cols * width), random);
    Buffer<float> bias = random_floats(static_cast<size_t>(cols), random);
    const std::vector<float> before = random_floats(step.floats(), random).copy();
    for (bool silu : {false, true}) {
      ConvParams params{.weight = weight.host(),
                        .bias = silu ? bias.host() : nullptr,
                        .width = width,
                        .silu = silu};
      Matrix expected = x;
      std::vector<float> expected_state = before;
      reference.causal_conv(expected.tensor(), params,
                            step.in(reinterpret_cast<std::byte*>(expected_state.data())),
                            expected.tensor());
      for (bool listed : {false, true}) {
        const Matrix y = in_every_order([&] {
          DeviceMatrix both(x, 1);
          Buffer<float> state(before);
          params.weight = weight.data();
          params.bias = silu ? bias.data() : nullptr;
          cuda::causal_conv(both.tensor(), params,
                            step.in(reinterpret_cast<std::byte*>(state.data())),
                            on_device.view(listed), both.tensor(), stream());
          EXPECT_TRUE(both.gaps_untouched() && state.intact());
          EXPECT_EQ(state.copy(), expected_state);
          return both.copy();
        });
        expect_near(y, expected, 2e-5F, 1e-5F);
      }
    }
  }
}

TEST(CudaStates, DecaysEqualTheReference) {
  Random random("CudaStates.DecaysEqualTheReference");
  ReferenceKernels reference(Compute::f32);
  Buffer<float> rates = random_floats(37, random), bias = random_floats(37, random);
  DecayParams params{.log_rates = rates.host(), .bias = bias.host(), .least = 0.1F, .most = 2};
  const Matrix x = Matrix::random(5, 37, random, 5);
  Matrix expected_steps = x, expected(5, 37);
  reference.decay(expected_steps.tensor(), params, expected.tensor());
  params.log_rates = rates.data();
  params.bias = bias.data();
  DeviceMatrix steps(x, 2), decays(5, 37, 1);
  cuda::decay(steps.tensor(), params, decays.tensor(), stream());
  expect_near(steps.copy(), expected_steps, 1e-6F, 1e-6F);
  expect_near(decays.copy(), expected, 1e-6F, 1e-5F);
  EXPECT_TRUE(decays.gaps_untouched() && steps.gaps_untouched());
}

TEST(CudaStates, RecurrencesEqualTheReference) {
  Random random("CudaStates.RecurrencesEqualTheReference");
  ReferenceKernels reference(Compute::f32);
  struct Size {
    int64_t key_heads, heads, key_dim, value_dim, page_rows, first_row;
  };
  for (const Size& s : {Size{1, 1, 1, 1, 1, 0}, {2, 4, 16, 32, 64, 0}, {1, 3, 7, 70, 5, 2}}) {
    SCOPED_TRACE(testing::Message() << s.heads << " heads of " << s.key_dim << ", " << s.value_dim);
    StateStep step(test::state_cache(s.heads * s.key_dim, s.value_dim, s.page_rows, s.first_row),
                   {{1, 3}, {17, 0}, {1, 0}, {3, 9}});
    DeviceStep on_device(step);
    const int64_t rows = step.rows();
    Matrix queries = Matrix::random(rows, s.key_heads * s.key_dim, random);
    Matrix keys = Matrix::random(rows, s.key_heads * s.key_dim, random, 0.3F);
    Matrix values = Matrix::random(rows, s.heads * s.value_dim, random);
    Matrix decays(rows, s.heads), steps(rows, s.heads);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t h = 0; h < s.heads; ++h) {
        decays.at(r, h) = static_cast<float>(random.uniform());
        steps.at(r, h) = static_cast<float>(random.uniform());
      }
    }
    Buffer<float> skip = random_floats(static_cast<size_t>(s.heads), random);
    const std::vector<float> before = random_floats(step.floats(), random).copy();
    for (bool delta : {false, true}) {
      ScanParams params{.key_dim = s.key_dim, .delta = delta, .skip = skip.host()};
      Matrix expected(rows, s.heads * s.value_dim);
      std::vector<float> expected_state = before;
      reference.scan(
          {queries.tensor(), keys.tensor(), values.tensor(), decays.tensor(), steps.tensor()},
          params, step.in(reinterpret_cast<std::byte*>(expected_state.data())), expected.tensor());
      for (bool listed : {false, true}) {
        const Matrix out = in_every_order([&] {
          DeviceMatrix q(queries, 1), k(keys, 0), both(values, 2), a(decays, 1), b(steps, 0);
          Buffer<float> state(before);
          params.skip = skip.data();
          cuda::scan({q.tensor(), k.tensor(), both.tensor(), a.tensor(), b.tensor()}, params,
                     step.in(reinterpret_cast<std::byte*>(state.data())), on_device.view(listed),
                     both.tensor(), stream());
          EXPECT_TRUE(both.gaps_untouched() && state.intact());
          for (size_t i = 0; i < before.size(); ++i)
            EXPECT_NEAR(state[i], expected_state[i], 1e-4F);
          return both.copy();
        });
        expect_near(out, expected, 1e-4F, 1e-5F);
      }
    }
  }
}

TEST(CudaStates, SelectiveScansEqualTheReference) {
  Random random("CudaStates.SelectiveScansEqualTheReference");
  ReferenceKernels reference(Compute::f32);
  struct Size {
    int64_t channels, key_dim, page_rows, first_row;
  };
  for (const Size& s : {Size{1, 1, 1, 0}, {64, 16, 32, 0}, {70, 7, 5, 2}}) {
    SCOPED_TRACE(testing::Message() << s.channels << " channels of " << s.key_dim);
    StateStep step(test::state_cache(s.key_dim, s.channels, s.page_rows, s.first_row),
                   {{1, 3}, {17, 0}, {1, 0}, {3, 9}});
    DeviceStep on_device(step);
    const int64_t rows = step.rows();
    Matrix queries = Matrix::random(rows, s.key_dim, random);
    Matrix keys = Matrix::random(rows, s.key_dim, random);
    Matrix values = Matrix::random(rows, s.channels, random);
    Matrix steps = Matrix::random(rows, s.channels, random, 4);
    Buffer<float> rates = random_floats(static_cast<size_t>(s.channels * s.key_dim), random);
    Buffer<float> skip = random_floats(static_cast<size_t>(s.channels), random);
    const std::vector<float> before = random_floats(step.floats(), random).copy();
    Matrix expected(rows, s.channels);
    std::vector<float> expected_state = before;
    reference.selective_scan({queries.tensor(), keys.tensor(), values.tensor(), steps.tensor()},
                             {.log_rates = rates.host(), .skip = skip.host()},
                             step.in(reinterpret_cast<std::byte*>(expected_state.data())),
                             expected.tensor());
    for (bool listed : {false, true}) {
      const Matrix out = in_every_order([&] {
        DeviceMatrix q(queries, 1), k(keys, 0), v(values, 2), both(steps, 1);
        Buffer<float> state(before);
        cuda::selective_scan({q.tensor(), k.tensor(), v.tensor(), both.tensor()},
                             {.log_rates = rates.data(), .skip = skip.data()},
                             step.in(reinterpret_cast<std::byte*>(state.data())),
                             on_device.view(listed), both.tensor(), stream());
        EXPECT_TRUE(both.gaps_untouched() && state.intact());
        for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(state[i], expected_state[i], 1e-4F);
        return both.copy();
      });
      expect_near(out, expected, 2e-4F, 2e-5F);
    }
  }
}

}  // namespace
}  // namespace sluice
