// Linear layers whose parts are one weight, or one each.
#include <gtest/gtest.h>

#include <vector>

#include "src/nn/layers.h"
#include "tests/quant/storage.h"
#include "tests/support/random.h"

namespace sluice {
namespace {

using test::StoredWeight;

constexpr int64_t kInputs = 96, kRows = 3;
const std::vector<LinearPart> kParts{{"l.q_proj", 40}, {"l.k_proj", 20}, {"l.v_proj", 16}};

class LinearParts : public testing::Test {
 protected:
  LinearParts() {
    layer_.each_param([&](Param& p) { (p.role == ParamRole::bias ? bias_ : weight_) = &p; });
    for (float& x : input_) x = random_.normal();
    for (float& x : bias_values_) x = random_.normal();
    bias_->value = {{DType::f32, WeightLayout::rows, ScaleKind::none},
                    1,
                    bias_->cols,
                    reinterpret_cast<std::byte*>(bias_values_.data()),
                    nullptr};
    for (const LinearPart& p : kParts) {
      auto& rows = values_.emplace_back(static_cast<size_t>(p.outputs * kInputs));
      for (float& x : rows) x = random_.normal();
    }
  }
  // The rows of a part, from `row` of `to` on.
  void encode(size_t part, const QuantScheme& scheme, const Weight& to, int64_t row) const {
    EncodeArgs args;
    args.source = reinterpret_cast<const std::byte*>(values_[part].data());
    args.stored = DType::f32;
    args.source_stride = kInputs * 4;
    args.rows = kParts[part].outputs;
    args.group = scheme.group;
    args.to = to;
    args.first_row = row;
    encode_reference(args);
  }
  Tensor input() {
    return {reinterpret_cast<std::byte*>(input_.data()), DType::f32, kRows, kInputs, kInputs};
  }
  static Tensor tensor(std::vector<float>& y, int64_t cols) {
    y.assign(static_cast<size_t>(kRows * cols), -1);
    return {reinterpret_cast<std::byte*>(y.data()), DType::f32, kRows, cols, cols};
  }

  test::Random random_{"linear parts"};
  Linear layer_{"l.qkv_proj", kParts, kInputs, true, Rank{}};
  SoloGroup solo_;
  Param* weight_ = nullptr;
  Param* bias_ = nullptr;
  std::vector<float> input_ = std::vector<float>(kRows * kInputs);
  std::vector<float> bias_values_ = std::vector<float>(static_cast<size_t>(layer_.outputs()));
  std::vector<std::vector<float>> values_;
  ThreadPool pool_{2};
  std::vector<std::byte> scratch_ = std::vector<std::byte>(
      cpu_workspace_bytes({.max_rows = kRows, .max_cols = kInputs, .key_dim = 16, .value_dim = 16},
                          2) +
      64);
  std::unique_ptr<Kernels> kernels_ = make_cpu_kernels(
      Isa::automatic, Compute::bf16, pool_,
      std::span(scratch_).subspan(64 - reinterpret_cast<uintptr_t>(scratch_.data()) % 64));
};

TEST_F(LinearParts, OfThreeSchemesAreThreeProducts) {
  const std::vector<const char*> schemes{"int8", "none", "fp8_per_block"};
  const auto parts = split(*weight_);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[1]->path, "l.qkv_proj.k_proj.weight");
  EXPECT_EQ(split(*weight_).data(), parts.data());
  std::vector<std::unique_ptr<StoredWeight>> stored;
  for (size_t i = 0; i < 3; ++i) {
    const QuantScheme scheme = *find_quant_scheme(schemes[i]);
    EXPECT_EQ(parts[i]->pieces.front().source, kParts[i].source + ".weight");
    stored.push_back(std::make_unique<StoredWeight>(scheme.format(DType::f32, WeightLayout::packed),
                                                    parts[i]->rows, kInputs));
    encode(i, scheme, stored[i]->weight, 0);
    parts[i]->value = stored[i]->weight;
  }
  std::vector<float> all, one;
  Tensor y = tensor(all, layer_.outputs());
  layer_.forward({*kernels_, solo_}, input(), y);
  for (size_t i = 0; i < 3; ++i) {
    const int64_t first = layer_.part_begin(i), rows = parts[i]->rows;
    Tensor product = tensor(one, rows);
    kernels_->linear(input(), stored[i]->weight, bias_values_.data() + first, product);
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t c = 0; c < rows; ++c)
        ASSERT_EQ(all[static_cast<size_t>(r * layer_.outputs() + first + c)],
                  one[static_cast<size_t>(r * rows + c)])
            << "part " << i << " row " << r << " output " << c;
  }
}

TEST_F(LinearParts, OfOneSchemeAreTheSameAsOneProduct) {
  for (const QuantScheme& scheme : element_schemes()) {
    if (scheme.group == ScaleGroup::tensor) continue;
    const WeightFormat format = scheme.format(DType::f32, WeightLayout::packed);
    StoredWeight whole(format, layer_.outputs(), kInputs);
    std::vector<std::unique_ptr<StoredWeight>> stored;
    for (size_t i = 0; i < 3; ++i) {
      encode(i, scheme, whole.weight, layer_.part_begin(i));
      stored.push_back(std::make_unique<StoredWeight>(format, split(*weight_)[i]->rows, kInputs));
      encode(i, scheme, stored[i]->weight, 0);
    }
    std::vector<float> fused, apart;
    Tensor y = tensor(fused, layer_.outputs());
    weight_->value = whole.weight;
    layer_.forward({*kernels_, solo_}, input(), y);
    weight_->value = {};
    for (size_t i = 0; i < 3; ++i) split(*weight_)[i]->value = stored[i]->weight;
    y = tensor(apart, layer_.outputs());
    layer_.forward({*kernels_, solo_}, input(), y);
    EXPECT_EQ(fused, apart) << scheme.name;
  }
}

}  // namespace
}  // namespace sluice
