// Norms, rope, gated activations, sums and embeddings, against the reference: sizes around those of
// warps, vectors and blocks, rows that vectors can and cannot read.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "tests/kernels/cuda/device.h"
#include "tests/kernels/logits_rows.h"

namespace sluice {
namespace {

using test::Buffer;
using test::DeviceMatrix;
using test::DeviceWeight;
using test::in_every_order;
using test::Matrix;
using test::Random;
using test::stream;

const QuantScheme kNone{"none"};

// Columns, and the gap between rows: with a gap of 4 whole vectors fit if the columns do.
struct Size {
  int64_t rows, cols, gap;
};
std::vector<Size> sizes(Random& random) {
  return {{1, 1, 0},
          {3, 31, 1},
          {2, 33, 0},
          {5, 128, 4},
          {4, 1024, 0},
          {2, 2052, 4},
          {3, 2050, 2},
          {random.between(1, 6), 4 * random.between(1, 700), 4},
          {random.between(1, 6), random.between(1, 3000), 3}};
}

TEST(CudaElementwise, LikeliestEqualsTheReference) {
  Random random("CudaElementwise.LikeliestEqualsTheReference");
  ReferenceKernels reference(Compute::bf16);
  for (int64_t cols :
       {int64_t{1}, int64_t{31}, int64_t{512}, int64_t{513}, random.between(2, 5000)}) {
    SCOPED_TRACE(testing::Message() << cols << " columns");
    Matrix m = test::logits_rows(cols, random);
    std::vector<TokenLogit> expected(9);
    reference.likeliest(m.tensor(), expected);
    in_every_order([&] {
      DeviceMatrix from(m, 1);
      Buffer<TokenLogit> found(9);
      cuda::likeliest(from.tensor(), found.data(), stream());
      EXPECT_TRUE(found.intact());
      test::expect_same(found.copy(), expected);
      return from.copy();
    });
  }
}

TEST(CudaElementwise, TopLogitsEqualTheReference) {
  Random random("CudaElementwise.TopLogitsEqualTheReference");
  ReferenceKernels reference(Compute::bf16);
  for (int64_t cols : {int64_t{1}, int64_t{31}, int64_t{513}, random.between(2, 3000)}) {
    for (int64_t k : {1, 7, 40}) {
      SCOPED_TRACE(testing::Message() << k << " of " << cols << " columns");
      Matrix m = test::logits_rows(cols, random);
      test::TopRows expected(9, 40);
      reference.top_logits(m.tensor(), k, expected.out());
      in_every_order([&] {
        DeviceMatrix from(m, 1);
        Buffer<TokenLogit> tokens(9 * 40);
        Buffer<int32_t> counts(9);
        cuda::top_logits(from.tensor(), k, {40, tokens.data(), counts.data()}, stream());
        EXPECT_TRUE(tokens.intact() && counts.intact());
        test::TopRows found(9, 40);
        found.tokens = tokens.copy();
        found.counts = counts.copy();
        test::expect_same(found, expected);
        return from.copy();
      });
    }
  }
}

// A norm of each kind, and the bias that it has.
struct NormCase {
  NormParams params;
  bool biased = false;
};
const NormCase kNorms[] = {{{.eps = 1e-5f}},
                           {{.eps = 1e-5f, .weight_offset = 1}},
                           {{.eps = 1e-5f, .kind = NormKind::layer}},
                           {{.eps = 1e-5f, .kind = NormKind::layer}, true}};

// What the mean leaves has an absolute error, which few columns may divide by little.
float absolute_error(const NormParams& params, int64_t cols) {
  return params.kind == NormKind::rms ? 1e-30f : cols < 16 ? 1e-3f : 1e-5f;
}

std::vector<float> random_vector(int64_t size, Random& random) {
  std::vector<float> x(static_cast<size_t>(size));
  for (float& v : x) v = random.normal();
  return x;
}

TEST(CudaElementwise, NormsEqualTheReference) {
  Random random("CudaElementwise.NormsEqualTheReference");
  ReferenceKernels reference(Compute::bf16);
  std::vector<std::pair<QuantScheme, DType>> weights;
  for (DType stored : {DType::f32, DType::f16}) weights.emplace_back(kNone, stored);
  for (const QuantScheme& scheme : quant_schemes()) weights.emplace_back(scheme, DType::bf16);
  for (const Size& s : sizes(random)) {
    for (const auto& [scheme, stored] : weights) {
      if (test::leaves_out(random)) continue;
      SCOPED_TRACE(testing::Message()
                   << s.rows << " x " << s.cols << ", gap " << s.gap << ", " << scheme.name);
      const NormCase& norm = kNorms[random.between(0, 3)];
      NormParams params = norm.params;
      const std::vector<float> bias = random_vector(s.cols, random);
      Matrix x = Matrix::random(s.rows, s.cols, random, 3), expected(s.rows, s.cols);
      DeviceWeight weight(scheme, stored, Matrix::random(1, s.cols, random));
      if (norm.biased) params.bias = bias.data();
      reference.norm(x.tensor(), weight.host(), params, expected.tensor());
      Matrix y = in_every_order([&] {
        DeviceMatrix from(x, s.gap), to(s.rows, s.cols, s.gap);
        Buffer<float> device_bias(bias);
        if (norm.biased) params.bias = device_bias.data();
        cuda::norm(from.tensor(), weight.weight, params, to.tensor(), stream());
        EXPECT_TRUE(same_bits(from.copy(), x));
        cuda::norm(from.tensor(), weight.weight, params, from.tensor(), stream());
        EXPECT_TRUE(same_bits(from.copy(), to.copy()));  // in place
        EXPECT_TRUE(from.gaps_untouched() && to.gaps_untouched());
        return to.copy();
      });
      expect_near(y, expected, absolute_error(params, s.cols), 3e-6f);
    }
  }
}

TEST(CudaElementwise, NormsOfPartsEqualTheReference) {
  Random random("CudaElementwise.NormsOfPartsEqualTheReference");
  for (int64_t cols : {int64_t{1}, int64_t{64}, int64_t{128}, random.between(2, 200)}) {
    for (const NormCase& norm : kNorms) {
      const int64_t parts = random.between(2, 6);
      NormParams params = norm.params;
      const std::vector<float> bias = random_vector(cols, random);
      Buffer<float> device_bias(bias);
      Matrix x = Matrix::random(3, parts * cols, random), expected(3, parts * cols);
      DeviceWeight weight(kNone, DType::bf16, Matrix::random(1, cols, random));
      DeviceMatrix from(x, 4), to(3, parts * cols, 4);
      if (norm.biased) params.bias = device_bias.data();
      cuda::norm(from.tensor(), weight.weight, params, to.tensor(), stream());
      if (norm.biased) params.bias = bias.data();
      ReferenceKernels(Compute::bf16).norm(x.tensor(), weight.host(), params, expected.tensor());
      expect_near(to.copy(), expected, absolute_error(params, cols), 3e-6f);
      EXPECT_TRUE(to.gaps_untouched());
    }
  }
}

TEST(CudaElementwise, AddNormIsBothInOne) {
  Random random("CudaElementwise.AddNormIsBothInOne");
  for (const Size& s : sizes(random)) {
    for (const NormCase& norm : kNorms) {
      NormParams params = norm.params;
      const std::vector<float> bias = random_vector(s.cols, random);
      Buffer<float> device_bias(bias);
      Matrix residual = Matrix::random(s.rows, s.cols, random);
      Matrix x = Matrix::random(s.rows, s.cols, random), expected(s.rows, s.cols);
      DeviceWeight weight(kNone, DType::bf16, Matrix::random(1, s.cols, random));
      DeviceMatrix sum(residual, s.gap), by(x, s.gap), to(s.rows, s.cols, s.gap);
      if (norm.biased) params.bias = device_bias.data();
      cuda::add_norm(sum.tensor(), by.tensor(), weight.weight, params, to.tensor(), stream());
      if (norm.biased) params.bias = bias.data();
      ReferenceKernels(Compute::bf16)
          .add_norm(residual.tensor(), x.tensor(), weight.host(), params, expected.tensor());
      EXPECT_TRUE(same_bits(sum.copy(), residual));
      expect_near(to.copy(), expected, absolute_error(params, s.cols), 3e-6f);
      EXPECT_TRUE(sum.gaps_untouched() && to.gaps_untouched());
    }
  }
}

TEST(CudaElementwise, AddAdds) {
  Random random("CudaElementwise.AddAdds");
  for (const Size& s : sizes(random)) {
    Matrix x = Matrix::random(s.rows, s.cols, random), y = Matrix::random(s.rows, s.cols, random);
    DeviceMatrix sum(x, s.gap), by(y, s.gap);
    cuda::add(sum.tensor(), by.tensor(), stream());
    ReferenceKernels(Compute::bf16).add(x.tensor(), y.tensor());
    EXPECT_TRUE(same_bits(sum.copy(), x));
    EXPECT_TRUE(sum.gaps_untouched());
  }
}

TEST(CudaElementwise, ScaleAndSoftCapEqualTheReference) {
  Random random("CudaElementwise.ScaleAndSoftCapEqualTheReference");
  const std::vector<float> by{0.3f};
  Buffer<float> device_by(by);
  for (const Size& s : sizes(random)) {
    Matrix x = Matrix::random(s.rows, s.cols, random, 30);
    DeviceMatrix on(x, s.gap);
    cuda::scale(on.tensor(), 1.7f, nullptr, stream());
    cuda::scale(on.tensor(), 2.5f, device_by.data(), stream());
    ReferenceKernels reference(Compute::bf16);
    reference.scale(x.tensor(), 1.7f, nullptr);
    reference.scale(x.tensor(), 2.5f, by.data());
    EXPECT_TRUE(same_bits(on.copy(), x));
    cuda::soft_cap(on.tensor(), 8, stream());
    reference.soft_cap(x.tensor(), 8);
    expect_near(on.copy(), x, 2e-6f, 2e-6f);
    EXPECT_TRUE(on.gaps_untouched());
  }
}

TEST(CudaElementwise, SumsOfSquaresAndNormsByThemEqualTheReference) {
  Random random("CudaElementwise.SumsOfSquaresAndNormsByThemEqualTheReference");
  ReferenceKernels reference(Compute::bf16);
  for (const Size& s : sizes(random)) {
    Matrix x = Matrix::random(s.rows, s.cols, random, 3), expected(s.rows, s.cols);
    Matrix sums(s.rows, 1);
    DeviceWeight weight(kNone, DType::bf16, Matrix::random(1, s.cols, random));
    DeviceMatrix from(x, s.gap), to(s.rows, s.cols, s.gap), device_sums(sums, 0);
    cuda::sum_squares(from.tensor(), device_sums.tensor(), stream());
    reference.sum_squares(x.tensor(), sums.tensor());
    expect_near(device_sums.copy(), sums, 1e-30f, 1e-5f);
    std::vector<float> given;
    for (int64_t r = 0; r < s.rows; ++r) given.push_back(sums.at(r, 0) + 3);
    Buffer<float> device_given(given);
    NormParams params{.eps = 1e-5f, .squares = given.data(), .squares_cols = s.cols + 5};
    reference.norm(x.tensor(), weight.host(), params, expected.tensor());
    params.squares = device_given.data();
    cuda::norm(from.tensor(), weight.weight, params, to.tensor(), stream());
    expect_near(to.copy(), expected, 1e-30f, 3e-6f);
    Weight none = weight.weight, host_none = weight.host();
    none.data = host_none.data = nullptr;
    cuda::norm(from.tensor(), none, {.eps = 1e-5f}, to.tensor(), stream());
    reference.norm(x.tensor(), host_none, {.eps = 1e-5f}, expected.tensor());
    expect_near(to.copy(), expected, 1e-30f, 3e-6f);
  }
}

TEST(CudaElementwise, ActivationsEqualTheReference) {
  Random random("CudaElementwise.ActivationsEqualTheReference");
  const std::vector<float> of_xielu{0.4f, -0.7f, 0.5f, -1e-6f};
  Buffer<float> device_values(of_xielu);
  for (Activation activation :
       {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu,
        Activation::relu_squared, Activation::xielu, Activation::sigmoid, Activation::identity}) {
    const bool learned = activation == Activation::xielu;
    const float* values = learned ? of_xielu.data() : nullptr;
    const float* on_device = learned ? device_values.data() : nullptr;
    const float large = learned || activation == Activation::relu_squared ? 1e15f : 1e30f;
    for (const Size& s : sizes(random)) {
      Matrix gate = Matrix::random(s.rows, s.cols, random, 4);
      Matrix up = Matrix::random(s.rows, s.cols, random), expected(s.rows, s.cols);
      const float extremes[] = {0.0f, -0.0f, large, -large, 90.0f, -90.0f};
      for (int64_t c = 0; c < std::min<int64_t>(s.cols, 6); ++c) gate.at(0, c) = extremes[c];
      DeviceMatrix from(gate, s.gap), by(up, s.gap), to(s.rows, s.cols, s.gap);
      cuda::activate(activation, on_device, from.tensor(), by.tensor(), to.tensor(), stream());
      ReferenceKernels(Compute::bf16)
          .activate(activation, values, gate.tensor(), up.tensor(), expected.tensor());
      expect_near(to.copy(), expected, 2e-6f, 2e-6f);
      EXPECT_TRUE(to.gaps_untouched());
      cuda::activate(activation, on_device, from.tensor(), {}, to.tensor(), stream());
      ReferenceKernels(Compute::bf16)
          .activate(activation, values, gate.tensor(), {}, expected.tensor());
      expect_near(to.copy(), expected, 2e-6f, 2e-6f);
      EXPECT_TRUE(to.gaps_untouched());
    }
  }
}

TEST(CudaElementwise, RopeRotatesPairs) {
  Random random("CudaElementwise.RopeRotatesPairs");
  for (auto [head_dim, rope_dim] : {std::pair{64, 64}, {80, 20}, {8, 8}, {112, 56}, {6, 2}}) {
    const int64_t rows = random.between(1, 5), heads = random.between(1, 9);
    for (RopePairing pairing : {RopePairing::halves, RopePairing::neighbours}) {
      Matrix x = Matrix::random(rows, heads * head_dim, random);
      Matrix cos = Matrix::random(rows, rope_dim / 2, random);
      Matrix sin = Matrix::random(rows, rope_dim / 2, random);
      DeviceMatrix on(x, 3), device_cos(cos, 0), device_sin(sin, 1);
      cuda::rope(on.tensor(), head_dim, pairing, device_cos.tensor(), device_sin.tensor(),
                 stream());
      ReferenceKernels(Compute::bf16)
          .rope(x.tensor(), head_dim, pairing, cos.tensor(), sin.tensor());
      EXPECT_TRUE(same_bits(on.copy(), x));
      EXPECT_TRUE(on.gaps_untouched());
    }
  }
}

TEST(CudaElementwise, EmbedLooksUpRowsOfEveryScheme) {
  Random random("CudaElementwise.EmbedLooksUpRowsOfEveryScheme");
  for (int64_t cols : {int64_t{1}, int64_t{300}, random.between(1, 700)}) {
    Matrix values = Matrix::random(50, cols, random);
    for (const QuantScheme& scheme : quant_schemes()) {
      for (DType stored : {DType::f32, DType::f16, DType::bf16}) {
        DeviceWeight table(scheme, stored, values);
        std::vector<int32_t> ids = {0, 49};
        for (int i = 0; i < 9; ++i) ids.push_back(static_cast<int32_t>(random.between(0, 49)));
        Buffer<int32_t> device_ids(ids);
        DeviceMatrix to(static_cast<int64_t>(ids.size()), cols, 2);
        Matrix expected(static_cast<int64_t>(ids.size()), cols);
        cuda::embed(table.weight, device_ids.data(), to.tensor(), stream());
        ReferenceKernels(Compute::bf16).embed(table.host(), ids, expected.tensor());
        EXPECT_TRUE(same_bits(to.copy(), expected)) << scheme.name;
        EXPECT_TRUE(to.gaps_untouched());
      }
    }
  }
}

TEST(CudaElementwise, NothingToDoLaunchesNothing) {
  const int64_t launches = test::launches();
  DeviceMatrix empty(0, 8, 0);
  DeviceWeight weight({DType::f32, WeightLayout::rows, ScaleKind::none}, 1, 8);
  cuda::norm(empty.tensor(), weight.weight, {}, empty.tensor(), stream());
  cuda::add(empty.tensor(), empty.tensor(), stream());
  cuda::activate(Activation::silu, nullptr, empty.tensor(), empty.tensor(), empty.tensor(),
                 stream());
  cuda::embed(weight.weight, nullptr, empty.tensor(), stream());
  EXPECT_EQ(test::launches(), launches);
}

}  // namespace
}  // namespace sluice
