// Choices of experts, and the rows that go to them and come back, against the reference.
#include <gtest/gtest.h>

#include <vector>

#include "tests/kernels/cuda/device.h"
#include "tests/kernels/experts_problem.h"

namespace sluice {
namespace {

using test::Buffer;
using test::Chosen;
using test::DeviceMatrix;
using test::in_every_order;
using test::Matrix;
using test::Random;
using test::RouteProblem;
using test::stream;

TEST(CudaExperts, ChoicesEqualTheReference) {
  Random random("CudaExperts.ChoicesEqualTheReference");
  ReferenceKernels reference(Compute::bf16);
  for (int i = 0; i < 12; ++i) {
    RouteProblem p(random);
    RouterParams params = p.params;
    if (p.has_bias) params.bias = p.bias.data();
    Chosen expected(9, params.used);
    reference.route(p.logits.tensor(), params, expected.out());
    in_every_order([&] {
      DeviceMatrix logits(p.logits, 1);
      Buffer<float> bias(p.bias);
      if (p.has_bias) params.bias = bias.data();
      Buffer<int32_t> experts(expected.experts.size());
      Buffer<float> weights(expected.weights.size());
      cuda::route(logits.tensor(), params, {experts.data(), weights.data()}, stream());
      EXPECT_TRUE(experts.intact() && weights.intact());
      Chosen found(9, params.used);
      found.experts = experts.copy();
      found.weights = weights.copy();
      test::expect_same(found, expected);
      return logits.copy();
    });
  }
}

TEST(CudaExperts, RowsAreGatheredAndAdded) {
  Random random("CudaExperts.RowsAreGatheredAndAdded");
  ReferenceKernels reference(Compute::bf16);
  const std::vector<int32_t> rows{7, 0, 3, 4};
  for (int64_t cols : {int64_t{1}, int64_t{64}, int64_t{1028}, random.between(2, 3000)}) {
    for (int64_t gap : {0, 3, 4}) {
      const Matrix x = Matrix::random(9, cols, random), weights = Matrix::random(4, 1, random);
      Matrix some(4, cols), sums = Matrix::random(9, cols, random);
      const Matrix before = sums;
      reference.index_select(const_cast<Matrix&>(x).tensor(), rows, some.tensor());
      reference.index_add(some.tensor(), rows, const_cast<Matrix&>(weights).tensor(),
                          sums.tensor());
      in_every_order([&] {
        DeviceMatrix from(x, gap), gathered(4, cols, gap), to(before, gap), by(weights, gap);
        Buffer<int32_t> at(rows);
        cuda::index_select(from.tensor(), {at.data(), 4}, gathered.tensor(), stream());
        cuda::index_add(gathered.tensor(), {at.data(), 4}, by.tensor(), to.tensor(), stream());
        EXPECT_TRUE(gathered.gaps_untouched() && to.gaps_untouched());
        EXPECT_TRUE(same_bits(gathered.copy(), some));
        EXPECT_TRUE(same_bits(to.copy(), sums));
        return to.copy();
      });
    }
  }
}

}  // namespace
}  // namespace sluice
