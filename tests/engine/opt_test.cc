// OPT whose norms are behind its blocks, with an embedding of another size than the stream, against
// a computation in float64 by the definition.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/engine/how.h"
#include "tests/support/checkpoint.h"

namespace sluice {
namespace {

constexpr int64_t kOptHidden = 32, kOptEmbedding = 16, kOptFfn = 48, kOptVocab = 16, kOptLayers = 2;

class OptModel {
 public:
  OptModel() {
    const std::string decoder = "model.decoder.";
    add(decoder + "embed_tokens.weight", {kOptVocab, kOptEmbedding});
    add(decoder + "embed_positions.weight", {kOptVocab + 2, kOptHidden});
    add(decoder + "project_in.weight", {kOptHidden, kOptEmbedding});
    add(decoder + "project_out.weight", {kOptEmbedding, kOptHidden});
    for (int64_t l = 0; l < kOptLayers; ++l) {
      const std::string layer = fmt::format("{}layers.{}.", decoder, l);
      for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"})
        add_linear(layer + "self_attn." + name, kOptHidden, kOptHidden);
      add_linear(layer + "fc1", kOptFfn, kOptHidden);
      add_linear(layer + "fc2", kOptHidden, kOptFfn);
      for (const char* name : {"self_attn_layer_norm", "final_layer_norm"}) {
        add(layer + name + ".weight", {kOptHidden}, 1);
        add(layer + name + ".bias", {kOptHidden});
      }
    }
    test::write_checkpoint(dir_.path(),
                           {{"architectures", {"OPTForCausalLM"}},
                            {"hidden_size", kOptHidden},
                            {"word_embed_proj_dim", kOptEmbedding},
                            {"do_layer_norm_before", false},
                            {"num_hidden_layers", kOptLayers},
                            {"num_attention_heads", 2},
                            {"ffn_dim", kOptFfn},
                            {"vocab_size", kOptVocab},
                            {"max_position_embeddings", kOptVocab}},
                           tensors_);
  }
  const std::filesystem::path& path() const { return dir_.path(); }

 private:
  void add_linear(const std::string& name, int64_t outputs, int64_t inputs) {
    add(name + ".weight", {outputs, inputs});
    add(name + ".bias", {outputs});
  }
  // Values between -0.5 and 0.5, and `more`, that follow from the tensor's number.
  void add(const std::string& name, const std::vector<int64_t>& shape, double more = 0) {
    const auto number = std::ssize(tensors_);
    std::vector<float> values(static_cast<size_t>(shape[0] * (shape.size() > 1 ? shape[1] : 1)));
    for (int64_t i = 0; i < std::ssize(values); ++i) {
      const auto value = static_cast<double>((i * i * 31 + i * 7 + number * 101) % 1009);
      values[static_cast<size_t>(i)] = static_cast<float>(value / 1009 - 0.5 + more);
    }
    tensors_.push_back(
        {name,
         shape,
         "F32",
         {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)}});
  }

  std::vector<test::TinyTensor> tensors_;
  test::TempDir dir_;
};

TEST(Opt, HasNormsBehindBlocksAndAProjectedEmbedding) {
  const OptModel model;
  const std::vector<int32_t> prompt{3, 1, 9, 9, 14};
  const std::vector<double> first{0.3072,  -1.6583, 1.3010,  0.3752, 2.6708,  3.3976,
                                  -3.4693, -2.2010, -2.2452, 2.1825, -1.1166, -1.7113,
                                  -1.0703, 1.3308,  1.0920,  2.9941};
  const std::vector<double> last{3.1818, -2.7247, -0.7056, 1.5534,  -1.1327, -0.3006,
                                 2.0730, -1.0579, 0.1262,  -0.7071, 1.6570,  1.4814,
                                 1.0584, -0.9860, 0.4547,  2.8349};
  test::How how{.dtype = DtypeChoice::f32, .threads = 1};
  const test::Outcome resident = test::run_model(model.path(), prompt, 2, how);
  for (size_t i = 0; i < static_cast<size_t>(kOptVocab); ++i) {
    EXPECT_NEAR(resident.logits.front()[i], first[i], 2e-4) << i;
    EXPECT_NEAR(resident.logits.at(4)[i], last[i], 2e-4) << i;
  }
  how.place = "project_in=disk,project_out=disk,layers=disk";
  EXPECT_EQ(test::run_model(model.path(), prompt, 2, how).logits, resident.logits);
}

}  // namespace
}  // namespace sluice
