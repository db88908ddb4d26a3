// Experts that kernels compute all at once, beside the same computed one after the other.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/kernels/linear_support.h"

namespace sluice {
namespace {

using test::Backend;
using test::Kind;
using test::Matrix;
using test::Random;

struct ExpertSizes {
  int64_t rows, top_k, count, hidden, width;
};

// Each expert's matrix behind the one before, with its bias behind it.
class ExpertStack {
 public:
  ExpertStack(const Kind& kind, int64_t count, int64_t rows, int64_t cols, bool bias,
              Random& random)
      : format_(with_layout(MatrixLayout::by_codes,
                            kind.scheme().format(kind.stored, WeightLayout::packed))) {
    format_.whole_blocks = format_.scales == ScaleKind::per_block && rows % kScaleBlock == 0;
    const auto bytes = static_cast<int64_t>(storage_bytes(format_, rows, cols));
    matrix.step = matrix.bias_step =
        bytes + static_cast<int64_t>(round_up(static_cast<uint64_t>(rows) * sizeof(float), 64));
    memory_ = test::aligned_bytes(static_cast<uint64_t>(matrix.step * count));
    for (int64_t e = 0; e < count; ++e) {
      std::byte* at = memory_.get() + e * matrix.step;
      Weight& w = weights.emplace_back(weight_in(format_, rows, cols, at));
      const test::StoredWeight from = test::random_weight(kind, format_.layout, rows, cols, random);
      for (Plane plane : kPlanes) {
        if (w.plane(plane) != nullptr)
          std::copy_n(from.weight.plane(plane), plane_bytes(format_, plane, rows, cols),
                      w.plane(plane));
      }
      biases.push_back(bias ? reinterpret_cast<float*>(at + bytes) : nullptr);
      for (int64_t r = 0; bias && r < rows; ++r) biases.back()[r] = random.normal(0.1f);
    }
    matrix.first = weights.front();
    matrix.bias = biases.front();
  }

  ExpertMatrix matrix;
  std::vector<Weight> weights;
  std::vector<float*> biases;

 private:
  WeightFormat format_;
  test::AlignedBytes memory_;
};

struct ExpertsProblem {
  ExpertsProblem(const Kind& kind, const ExpertSizes& s, Random& random)
      : sizes(s),
        gated(random.between(0, 3) > 0),
        second(gated ? ceil_div(s.width, kPanelRows) * kPanelRows : 0),
        up(kind, s.count, second + ceil_div(s.width, kPanelRows) * kPanelRows, s.hidden,
           random.between(0, 1) == 1, random),
        down(kind, s.count, ceil_div(s.hidden, kPanelRows) * kPanelRows, s.width,
             random.between(0, 1) == 1, random),
        x(Matrix::random(s.rows, s.hidden, random)),
        shared(Matrix::random(s.rows, down.matrix.first.rows, random)),
        shared_weights(Matrix::random(s.rows, 1, random)),
        how_shared(random.between(0, 2)) {
    weights.count = s.count;
    weights.width = s.width;
    weights.up = up.matrix;
    weights.down = down.matrix;
    weights.second = second;
    weights.activation
        .kind = std::array{Activation::silu,         Activation::gelu_tanh,
                           Activation::relu_squared, Activation::clamped_swiglu,
                           Activation::clamped_silu, Activation::silu_clamped}[static_cast<size_t>(
        random.between(0, gated ? 5 : 2))];
    weights.activation.limit = 0.5f;
    weights.activation.alpha = 1.7f;
    weights.gate_multiplier = random.between(0, 1) == 1 ? 1 : 0.5f;
    std::vector<int32_t> all(static_cast<size_t>(s.count));
    std::iota(all.begin(), all.end(), 0);
    for (int64_t r = 0; r < s.rows; ++r) {
      for (size_t i = 0; i < all.size(); ++i)
        std::swap(all[i], all[static_cast<size_t>(random.between(0, s.count - 1))]);
      std::vector<int32_t> mine(all.begin(), all.begin() + s.top_k);
      std::ranges::sort(mine);
      experts.insert(experts.end(), mine.begin(), mine.end());
      for (int64_t i = 0; i < s.top_k; ++i) choice_weights.push_back(random.normal(0.5f));
    }
  }
  ExpertChoices choices() { return {experts.data(), choice_weights.data()}; }
  SharedExpert what_is_shared() {
    if (how_shared == 0) return {};
    return {shared.tensor(), how_shared == 2 ? shared_weights.tensor() : Tensor{}};
  }

  // One after the other, for at most 16 rows at a time, as linear() computes those.
  Matrix in_turn(const Backend& backend) {
    Matrix y(sizes.rows, down.matrix.first.rows);
    for (int64_t r = 0; r < y.rows(); ++r)
      for (int64_t c = 0; c < y.cols(); ++c) y.at(r, c) = 0;
    for (int64_t e = 0; e < sizes.count; ++e) {
      std::vector<int32_t> rows;
      std::vector<float> by;
      for (size_t p = 0; p < experts.size(); ++p) {
        if (experts[p] != e) continue;
        rows.push_back(static_cast<int32_t>(p) / static_cast<int32_t>(sizes.top_k));
        by.push_back(choice_weights[p]);
      }
      for (size_t at = 0; at < rows.size(); at += 16) {
        const std::span some = std::span(rows).subspan(at, std::min<size_t>(16, rows.size() - at));
        add_expert(backend, static_cast<size_t>(e), some, by.data() + at, y);
      }
    }
    const SharedExpert more = what_is_shared();
    std::vector<int32_t> every(static_cast<size_t>(sizes.rows));
    std::iota(every.begin(), every.end(), 0);
    if (how_shared == 1) backend->add(y.tensor(), more.out);
    if (how_shared == 2) backend->index_add(more.out, every, more.weights, y.tensor());
    return y;
  }

  ExpertSizes sizes;
  bool gated;
  int64_t second;
  ExpertStack up, down;
  Matrix x, shared, shared_weights;
  int64_t how_shared;
  ExpertWeights weights;
  std::vector<int32_t> experts;
  std::vector<float> choice_weights;

 private:
  Matrix columns(const Matrix& from, int64_t begin) const {
    Matrix part(from.rows(), sizes.width);
    for (int64_t r = 0; r < part.rows(); ++r)
      for (int64_t c = 0; c < part.cols(); ++c) part.at(r, c) = from.at(r, begin + c);
    return part;
  }
  void add_expert(const Backend& backend, size_t e, std::span<const int32_t> rows, float* by,
                  Matrix& y) {
    const auto count = std::ssize(rows);
    Matrix some(count, sizes.hidden), inner(count, up.matrix.first.rows);
    Matrix out(count, y.cols());
    backend->index_select(x.tensor(), rows, {}, some.tensor());
    backend->linear(some.tensor(), up.weights[e], up.biases[e], inner.tensor());
    Matrix first = columns(inner, 0), factor = columns(inner, second);
    const Tensor part = first.tensor(), by_part = gated ? factor.tensor() : Tensor{};
    if (weights.gate_multiplier != 1) backend->scale(part, weights.gate_multiplier, nullptr);
    backend->activate(weights.activation, part, by_part, part);
    backend->linear(part, down.weights[e], down.biases[e], out.tensor());
    const Tensor weight{reinterpret_cast<std::byte*>(by), DType::f32, count, 1, 1};
    backend->index_add(out.tensor(), rows, weight, y.tensor());
  }
};

const Kind kExpertKinds[] = {
    {DType::bf16, ScaleGroup::none},
    {DType::bf16, ScaleGroup::row},
    {DType::bf16, ScaleGroup::block},
    {DType::bf16, ScaleGroup::row, DType::f8_e4m3, true},
    {DType::bf16, ScaleGroup::block, DType::f8_e4m3, true},
    {DType::bf16, ScaleGroup::row, DType::i8},
    {.stored = DType::bf16, .group = ScaleGroup::columns, .name = "mxfp4"},
    {.stored = DType::bf16, .group = ScaleGroup::columns, .name = "int4_g32"},
    {.stored = DType::bf16, .group = ScaleGroup::columns, .name = "int4_g128"}};

class ExpertsAtOnce : public test::EveryTarget {
 protected:
  // Returns what is computed at once, in another matrix or where x is; no rows: not at all.
  Matrix at_once(const Backend& backend, ExpertsProblem& p, bool in_place) {
    Matrix y(p.sizes.rows, p.down.matrix.first.rows), x = p.x;
    if (!backend->computes_experts(p.weights, p.sizes.top_k)) return {0, 0};
    if (in_place && y.cols() == p.x.cols()) y = p.x;
    const Tensor from = in_place && y.cols() == p.x.cols() ? y.tensor() : x.tensor();
    backend->experts(from, p.weights, p.sizes.top_k, p.choices(), p.what_is_shared(), y.tensor());
    EXPECT_TRUE(y.gaps_untouched());
    return y;
  }
  Backend backend_for(const ExpertSizes& s) {
    return {GetParam(),
            Compute::bf16,
            {.max_rows = s.rows,
             .max_cols = std::max(s.hidden, s.width),
             .experts = s.count,
             .top_k = s.top_k,
             .expert_cols = s.width,
             .expert_hidden = s.hidden}};
  }
  // Calls body(kind, found, expected) with what experts() makes of problems of these sizes, and the
  // same one after another: each size with some of the formats, another time with others.
  template <class Body>
  void with_problems(std::initializer_list<ExpertSizes> sizes, Random& random, Body&& body) {
    int64_t turn = random.between(0, 2);
    for (const ExpertSizes& s : sizes) {
      ++turn;
      for (const Kind& kind : kExpertKinds) {
        if (turn++ % 3 != 0) continue;
        SCOPED_TRACE(testing::Message() << s.rows << " rows, " << s.hidden << " x " << s.width
                                        << ", " << static_cast<int>(kind.group) << ", "
                                        << static_cast<int>(kind.codes) << kind.quantized_input);
        ExpertsProblem p(kind, s, random);
        const Backend backend = backend_for(s);
        const Matrix found = at_once(backend, p, random.between(0, 1) == 1);
        ASSERT_EQ(found.rows(), s.rows);
        body(kind, found, p.in_turn(backend));
      }
    }
  }
};

TEST_P(ExpertsAtOnce, FewRowsHaveTheBitsOfLinear) {
  if (GetParam().gpu == nullptr) GTEST_SKIP() << "the CPU computes experts one after the other";
  Random random("ExpertsAtOnce.FewRowsHaveTheBitsOfLinear");
  with_problems({{1, 3, 7, 48, 32},
                 {3, 2, 5, 128, 48},
                 {16, 1, 3, 272, 144},
                 {1, 2, 2, 1168, 1040},
                 {2, 9, 12, 64, 16}},
                random, [](const Kind&, const Matrix& found, const Matrix& expected) {
                  EXPECT_TRUE(same_bits(found, expected));
                });
}

// Columns within tiles, tiles of both heights, experts without rows and with more than a tile's.
TEST_P(ExpertsAtOnce, ManyRowsEqualFew) {
  if (GetParam().gpu == nullptr) GTEST_SKIP() << "the CPU computes experts one after the other";
  Random random("ExpertsAtOnce.ManyRowsEqualFew");
  with_problems(
      {{17, 2, 30, 48, 32}, {150, 1, 2, 80, 144}, {180, 2, 2, 272, 48}, {40, 3, 4, 144, 112}},
      random, [](const Kind& kind, const Matrix& found, const Matrix& expected) {
        double difference = 0, size = 0;
        for (int64_t r = 0; r < expected.rows(); ++r) {
          for (int64_t c = 0; c < expected.cols(); ++c) {
            difference += std::pow(found.at(r, c) - expected.at(r, c), 2.0);
            size += std::pow(expected.at(r, c), 2.0);
          }
        }
        // Scales of blocks are rounded together with codes, and codes of what comes out
        // fall otherwise.
        double most = kind.name != nullptr ? 6e-3 : 2e-3;  // as are integers of groups
        if (kind.group == ScaleGroup::block) most = kind.quantized_input ? 5e-2 : 6e-3;
        EXPECT_LE(std::sqrt(difference / size), most);
      });
}

TEST_P(ExpertsAtOnce, OthersAreLeftToLinear) {
  Random random("ExpertsAtOnce.OthersAreLeftToLinear");
  const ExpertSizes s{1, 1, 2, 48, 32};
  for (const Kind& kind :
       {Kind{DType::f32, ScaleGroup::none}, Kind{DType::f16, ScaleGroup::none}}) {
    ExpertsProblem p(kind, s, random);
    EXPECT_FALSE(backend_for(s)->computes_experts(p.weights, s.top_k));
  }
  ExpertsProblem p(kExpertKinds[0], s, random);
  for (Activation activation : {Activation::xielu, Activation::softplus}) {
    p.weights.activation.kind = activation;
    EXPECT_FALSE(backend_for(s)->computes_experts(p.weights, s.top_k));
  }
}

SLUICE_OVER_EVERY_TARGET(ExpertsAtOnce);

}  // namespace
}  // namespace sluice
