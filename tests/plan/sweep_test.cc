#include "src/plan/sweep.h"

#include <gtest/gtest.h>

#include <optional>

#include "src/models/families.h"
#include "tests/support/checkpoint.h"

namespace sluice {
namespace {

class SweepTest : public testing::Test {
 protected:
  void write(const Json& config) {
    test::Random random("sweep");
    test::write_checkpoint(dir_.path(), config, test::tiny_tensors(config, random));
    model_ = build_model(dir_.path(), Rank{});
    index_.emplace(io::open_checkpoint(dir_.path()));
    all_ = lay_out(model_, *index_, {*find_quant_scheme("none")});
  }
  uint64_t bytes(const std::vector<bool>& chosen, bool streamed) const {
    uint64_t sum = 0;
    for (size_t i = 0; i < chosen.size(); ++i) {
      bool vector = all_.params[i].param->pieces.front().vector;
      if (chosen[i] == streamed && !vector) sum += all_.params[i].bytes;
    }
    return sum;
  }

  test::TempDir dir_;
  Model model_;
  std::optional<io::CheckpointIndex> index_;
  ReadPlan all_;
};

TEST_F(SweepTest, AsMuchStaysAsThereIsRoomFor) {
  Json config = test::tiny_config();
  config["num_hidden_layers"] = 12;
  config["tie_word_embeddings"] = true;
  write(config);
  uint64_t total = bytes(std::vector<bool>(all_.params.size()), false);
  uint64_t smallest = UINT64_MAX;
  for (const ParamPlan& p : all_.params) {
    if (!p.param->pieces.front().vector) smallest = std::min(smallest, p.bytes);
  }
  for (uint64_t room = 0; room <= total + 20000; room += 997) {
    std::vector<bool> streamed = choose_streamed(all_, room);
    uint64_t stays = bytes(streamed, false);
    EXPECT_LE(stays, room);
    // Nothing else would have fitted: up to alignment, the rest of the room is smaller than any.
    uint64_t slack = 128 * all_.params.size();
    if (stays < total) {
      EXPECT_GT(stays + smallest + slack, std::min(room, total)) << room;
    }
  }
}

TEST_F(SweepTest, AHeadThatIsLargerThanAllThatHasToGoStays) {
  Json config = test::tiny_config();
  config["num_hidden_layers"] = 12;
  config["tie_word_embeddings"] = true;
  config["vocab_size"] = 2000;
  write(config);
  uint64_t total = bytes(std::vector<bool>(all_.params.size()), false);
  uint64_t head = all_.params.front().bytes;
  ASSERT_EQ(all_.params.front().param->role, ParamRole::embedding);
  std::vector<bool> streamed = choose_streamed(all_, total - head / 2);
  EXPECT_FALSE(streamed.front());
  EXPECT_LT(bytes(streamed, true), head);
  EXPECT_TRUE(choose_streamed(all_, 0).front());
}

TEST_F(SweepTest, WhatGoesIsSpreadOverTheLayers) {
  Json config = test::tiny_config();
  config["num_hidden_layers"] = 24;
  write(config);
  uint64_t total = bytes(std::vector<bool>(all_.params.size()), false);
  std::vector<bool> streamed = choose_streamed(all_, total / 2);
  uint64_t halves[2] = {0, 0};
  for (size_t i = 0; i < streamed.size(); ++i) {
    if (streamed[i]) halves[i * 2 / streamed.size()] += all_.params[i].bytes;
  }
  EXPECT_GT(halves[0], halves[1] / 2);
  EXPECT_GT(halves[1], halves[0] / 2);
}

}  // namespace
}  // namespace sluice
