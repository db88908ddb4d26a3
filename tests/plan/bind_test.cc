// Pieces of stored tensors: together they have the tensor's shape, and each element once.
#include "src/plan/bind.h"

#include <gtest/gtest.h>

#include "src/base/error.h"
#include "tests/support/fusion.h"

namespace sluice {
namespace {

using test::Fusion;

const std::string kLayer = "model.layers.0.";

Fusion qkv() {
  std::string a = kLayer + "self_attn.";
  return {{a + "q_proj", a + "k_proj", a + "v_proj"}, a + "qkv"};
}
Fusion gate_up() {
  std::string m = kLayer + "mlp.";
  return {{m + "gate_proj", m + "up_proj"}, m + "gate_up"};
}
Fusion down() { return {{kLayer + "mlp.down_proj"}, kLayer + "mlp.c_proj"}; }

class Bind : public testing::Test {
 protected:
  Bind() {
    config_["attention_bias"] = config_["mlp_bias"] = true;
    config_["num_hidden_layers"] = 1;
    test::Random random("bind");
    tensors_ = test::tiny_tensors(config_, random);
  }
  // Returns the refusal's message; empty: there is none. `change` is done to the model's pieces.
  template <class Change>
  std::string refusal(Rank rank, const std::vector<Fusion>& fusions, const Change& change) {
    std::vector<test::TinyTensor> stored = tensors_;
    for (const Fusion& f : fusions) fuse(f, stored);
    test::TempDir dir;
    test::write_checkpoint(dir.path(), config_, stored);
    io::CheckpointIndex index = io::open_checkpoint(dir.path());
    Model model = build_model(dir.path(), rank, &index);
    for (const Fusion& f : fusions) fuse(f, model);
    model.root->each_param([&](Param& p) {
      for (Piece& piece : p.pieces) change(piece);
    });
    try {
      Binding binding = bind_tensors(model, index);
      EXPECT_TRUE(std::ranges::all_of(binding.tensors, &TensorPlan::stored));
      return {};
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), ErrorKind::refused);
      return e.what();
    }
  }
  std::string refusal(Rank rank, const std::vector<Fusion>& fusions) {
    return refusal(rank, fusions, [](Piece&) {});
  }
  Json config_ = test::tiny_config();  // 6 heads of 8, 2 KV heads; hidden 48, inner 40
  std::vector<test::TinyTensor> tensors_;
};

TEST_F(Bind, PartsMayShareAStoredTensor) {
  for (Rank rank : {Rank{}, Rank{1, 2}}) {
    for (bool transposed : {false, true}) {
      Fusion together = qkv(), by_heads = qkv(), by_rows = gate_up(), stack = gate_up(),
             one = down();
      by_heads.groups = {24, 8, 8};
      by_rows.groups = {1, 1};
      stack.stacked = true;
      for (Fusion* f : {&together, &by_heads, &by_rows, &stack, &one}) f->transposed = transposed;
      EXPECT_EQ(refusal(rank, {together, by_rows, one}), "");
      EXPECT_EQ(refusal(rank, {by_heads, stack}), "");
    }
  }
}

TEST_F(Bind, AVectorMayBeAMatrixOfItsElements) {
  const std::string name = kLayer + "self_attn.o_proj.bias";
  std::ranges::find(tensors_, name, &test::TinyTensor::name)->shape = {6, 8};
  const auto asked = [&](int64_t row) {
    return refusal({}, {}, [&](Piece& p) {
      if (p.source == name) p.view.row = row;
    });
  };
  EXPECT_EQ(asked(8), "");
  for (const auto& [row, shape] : {std::pair(0, "[48]"), std::pair(6, "[8, 6]")})
    EXPECT_NE(asked(row).find(fmt::format("[6, 8], but config.json asks for {}", shape)),
              std::string::npos)
        << row;
}

TEST_F(Bind, WhatIsClaimedTwiceOrNotAtAllIsNamed) {
  Fusion by_rows = gate_up();
  by_rows.groups = {1, 1};
  Fusion stack = gate_up();
  stack.stacked = true;
  auto up = [](const Piece& p) { return p.source.ends_with("gate_up.weight") && p.offset > 0; };
  std::string message = refusal({}, {by_rows}, [&](Piece& p) {
    if (up(p)) p.view.first = 0;
  });
  // All that is stored is the gate's and up's: 79 outputs.
  EXPECT_NE(message.find("has shape [80, 48], but config.json asks for [79, 48]"),
            std::string::npos)
      << message;
  message = refusal({}, {stack}, [&](Piece& p) {
    if (up(p)) p.view.index = 0;
  });
  EXPECT_NE(
      message.find("gate_up.weight has shape [2, 40, 48], but config.json asks for [1, 40, 48]"),
      std::string::npos)
      << message;
  message = refusal({}, {stack}, [&](Piece& p) {
    if (up(p) || p.source.ends_with("gate_up.weight")) p.view.index = 1;
  });
  EXPECT_NE(message.find("gate_up.weight[0] is not part of"), std::string::npos) << message;
  EXPECT_NE(message.find("gate_up.weight[1] is claimed by both"), std::string::npos) << message;
  message = refusal({}, {qkv()}, [](Piece& p) {
    if (p.source.ends_with("qkv.bias") && p.view.first == 48) p.view.first = 50;  // k
  });
  EXPECT_NE(message.find("outputs 48 to 49 of model.layers.0.self_attn.qkv.bias are not part of"),
            std::string::npos)
      << message;
  message = refusal({}, {qkv()}, [](Piece& p) {
    if (p.source.ends_with("qkv.weight") && p.view.first == 48) p.view.first = 40;
  });
  EXPECT_NE(message.find("qkv.weight is claimed by both"), std::string::npos) << message;
}

// One message for a tensor, however many pieces it has; a convolution's [channels, 1, width] is a
// matrix.
TEST_F(Bind, ShapesAreThoseOfTheWholeTensor) {
  auto at = std::ranges::find(tensors_, kLayer + "mlp.down_proj.weight", &test::TinyTensor::name);
  at->shape = {48, 1, 40};
  EXPECT_EQ(refusal({}, {}), "");
  at->shape = {40, 1, 48};
  EXPECT_NE(refusal({}, {}).find(
                "down_proj.weight has shape [40, 1, 48], but config.json asks for [48, 40]"),
            std::string::npos);
  at->shape = {48, 40};
  config_["num_key_value_heads"] = 3;
  std::string message = refusal({}, {qkv()});
  size_t first = message.find("qkv.weight has shape [80, 48], but config.json asks for [96, 48]");
  ASSERT_NE(first, std::string::npos) << message;
  EXPECT_EQ(message.find("qkv.weight", first + 1), std::string::npos) << message;
}

}  // namespace
}  // namespace sluice
