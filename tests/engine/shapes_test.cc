// Odd shapes through the whole model: the fast kernels against the plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "quant/float8.h"
#include "src/engine/loaded_model.h"
#include "tests/support/checkpoint.h"

namespace sluice {
namespace {

std::vector<float> last_logits(const std::filesystem::path& model, Isa isa, DtypeChoice dtype) {
  ModelOptions options;
  options.model = model;
  options.isa = isa;
  options.dtype = dtype;
  options.threads = 2;
  Planner planner(options);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 23; ++i)
    ids.push_back(i * 5 % static_cast<int32_t>(planner.checkpoint().spec().vocab_size));
  LoadedModel loaded(planner, planner.place(planner.run_shape(23, 23, 1)));
  Sequence sequence = loaded.runner().new_sequence();
  Tensor logits = loaded.runner().logits(loaded.runner().prefill(sequence, ids, {}));
  return {logits.row<float>(0), logits.row<float>(0) + logits.cols};
}

TEST(Shapes, FastKernelsAgreeWithTheReferenceOnOddModels) {
  test::Random random("odd models");
  for (int64_t head_dim : {2, 4, 6, 10, 12, 20, 34, 70, 130}) {
    Json config = test::tiny_config();
    int64_t kv_heads = random.between(1, 3);
    config["head_dim"] = head_dim;
    config["num_key_value_heads"] = kv_heads;
    config["num_attention_heads"] = kv_heads * random.between(1, 5);
    config["hidden_size"] = random.between(3, 90);
    config["intermediate_size"] = random.between(1, 90);
    config["vocab_size"] = random.between(2, 200);
    config["attention_bias"] = random.uniform() < 0.5;
    config["mlp_bias"] = random.uniform() < 0.5;
    test::TempDir dir;
    test::write_checkpoint(dir.path(), config, test::tiny_tensors(config, random));
    for (DtypeChoice dtype : {DtypeChoice::f32, DtypeChoice::bf16}) {
      std::vector<float> expected = last_logits(dir.path(), Isa::reference, dtype);
      double scale = 0;
      for (float x : expected) scale = std::max(scale, std::abs(double{x}));
      for (Isa isa : {Isa::portable, Isa::avx2, Isa::avx512_bf16, Isa::amx}) {
        if (!isa_supported(isa)) continue;
        std::vector<float> actual = last_logits(dir.path(), isa, dtype);
        double tolerance = (dtype == DtypeChoice::f32 ? 1e-4 : 0.1) * scale + 1e-6;
        for (size_t i = 0; i < expected.size(); ++i) {
          ASSERT_NEAR(actual[i], expected[i], tolerance) << config.dump() << " token " << i;
        }
      }
    }
  }
}

// The same numbers, stored as BF16, and as doubles that round to them.
TEST(Shapes, AModelOfDoublesIsTheSameModel) {
  test::Random random("doubles");
  Json config = test::tiny_config();
  std::vector<test::TinyTensor> tensors = test::tiny_tensors(config, random);
  test::TempDir narrow, wide;
  test::write_checkpoint(narrow.path(), config, tensors);
  for (test::TinyTensor& t : tensors) {
    std::string doubles;
    for (size_t i = 0; i < t.bytes.size(); i += 2) {
      uint16_t code;
      std::memcpy(&code, t.bytes.data() + i, sizeof code);
      double value = double{bf16_to_float(code)} * (1 + 0x1p-40);
      doubles.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    t.bytes = std::move(doubles);
    t.dtype = "F64";
  }
  config["torch_dtype"] = "float64";
  test::write_checkpoint(wide.path(), config, tensors);
  for (DtypeChoice dtype : {DtypeChoice::f32, DtypeChoice::bf16}) {
    EXPECT_EQ(last_logits(wide.path(), Isa::automatic, dtype),
              last_logits(narrow.path(), Isa::automatic, dtype));
  }
}

}  // namespace
}  // namespace sluice
