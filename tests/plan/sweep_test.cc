#include "src/plan/sweep.h"

#include <gtest/gtest.h>

#include <optional>

#include "src/models/registry.h"
#include "src/plan/lay_out.h"
#include "tests/support/checkpoint.h"
#include "tests/support/temp.h"

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
  uint64_t bytes(const Placement& chosen, Tier tier) const {
    uint64_t sum = 0;
    for (size_t i = 0; i < chosen.size(); ++i) {
      bool vector = all_.params[i].param->pieces.front().vector;
      if (chosen[i] == tier && !vector) sum += all_.params[i].bytes;
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
  uint64_t total = bytes(Placement(all_.params.size()), Tier::device);
  uint64_t smallest = UINT64_MAX;
  for (const ParamPlan& p : all_.params) {
    if (!p.param->pieces.front().vector) smallest = std::min(smallest, p.bytes);
  }
  for (uint64_t room = 0; room <= total + 20000; room += 997) {
    uint64_t stays = bytes(choose_placement(all_, {room}), Tier::device);
    EXPECT_LE(stays, room);
    // No other parameter would have fitted: up to alignment, the rest of the room is smaller than
    // any.
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
  uint64_t total = bytes(Placement(all_.params.size()), Tier::device);
  uint64_t head = all_.params.front().bytes;
  ASSERT_EQ(all_.params.front().param->role, ParamRole::embedding);
  Placement placement = choose_placement(all_, {total - head / 2});
  EXPECT_EQ(placement.front(), Tier::device);
  EXPECT_LT(bytes(placement, Tier::disk), head);
  EXPECT_EQ(choose_placement(all_, {0}).front(), Tier::disk);
}

TEST_F(SweepTest, WhatGoesIsSpreadOverTheLayers) {
  Json config = test::tiny_config();
  config["num_hidden_layers"] = 24;
  write(config);
  uint64_t total = bytes(Placement(all_.params.size()), Tier::device);
  Placement placement = choose_placement(all_, {total / 2});
  uint64_t halves[2] = {0, 0};
  for (size_t i = 0; i < placement.size(); ++i) {
    if (placement[i] == Tier::disk) halves[i * 2 / placement.size()] += all_.params[i].bytes;
  }
  EXPECT_GT(halves[0], halves[1] / 2);
  EXPECT_GT(halves[1], halves[0] / 2);
}

// A tied head comes first among the parameters and last in a sweep. With it on disk the disk still
// has work while the layers are computed.
TEST_F(SweepTest, BesideALargeHeadWhatStaysIsSpreadToo) {
  Json config = test::tiny_config();
  config["num_hidden_layers"] = 24;
  config["tie_word_embeddings"] = true;
  config["vocab_size"] = 4000;
  write(config);
  const uint64_t total = bytes(Placement(all_.params.size()), Tier::device);
  const uint64_t head = all_.params.front().bytes, layers = total - head;
  ASSERT_GT(head, layers / 2);
  const Placement placement = choose_placement(all_, {layers - layers / 4});
  EXPECT_EQ(placement.front(), Tier::disk);
  uint64_t quarters[4] = {};
  for (size_t i = 1; i < placement.size(); ++i) {
    if (placement[i] == Tier::disk) quarters[i * 4 / placement.size()] += all_.params[i].bytes;
  }
  for (uint64_t quarter : quarters) EXPECT_GT(quarter, layers / 32);
}

// A parameter that all tokens use stays as long as one of an expert could go for it.
TEST_F(SweepTest, ExpertsLeaveBeforeWhatAllTokensUse) {
  const std::filesystem::path mixtral = test::source_dir() / "tests/data/models/mixtral";
  model_ = build_model(mixtral, Rank{});
  index_.emplace(io::open_checkpoint(mixtral));
  all_ = lay_out(model_, *index_, {*find_quant_scheme("none")});
  const uint64_t total = bytes(Placement(all_.params.size()), Tier::device);
  bool both_go = false, experts_go = false;
  for (uint64_t room = 0; room < total; room += 997) {
    const Placement placement = choose_placement(all_, {room});
    bool common_goes = false, expert_goes = false, expert_stays = false;
    for (size_t i = 0; i < placement.size(); ++i) {
      const ParamPlan& p = all_.params[i];
      if (p.param->pieces.front().vector || p.only_looked_up()) continue;
      const bool is_expert = p.param->is_routed();
      const bool goes = placement[i] == (is_expert ? Tier::cached : Tier::disk);
      common_goes |= goes && !is_expert;
      expert_goes |= goes && is_expert;
      expert_stays |= !goes && is_expert;
    }
    EXPECT_FALSE(common_goes && expert_stays) << room;
    both_go |= common_goes && expert_goes;
    experts_go |= expert_goes && !common_goes;
  }
  EXPECT_TRUE(both_go && experts_go);
}

// Weights that the device has no room for go to host memory, and only those that do not fit there
// to disk.
TEST_F(SweepTest, HostMemoryComesBeforeTheDisk) {
  Json config = test::tiny_config();
  config["num_hidden_layers"] = 12;
  write(config);
  uint64_t total = bytes(Placement(all_.params.size()), Tier::device);
  uint64_t slack = 128 * all_.params.size();
  for (uint64_t device = 0; device <= total; device += 9973) {
    for (uint64_t host = 0; host <= total + slack; host += 9973) {
      Placement placement = choose_placement(all_, {device, host});
      EXPECT_LE(bytes(placement, Tier::device), device);
      EXPECT_LE(bytes(placement, Tier::host), host);
      // The device has the same as without host memory.
      EXPECT_EQ(bytes(placement, Tier::device),
                bytes(choose_placement(all_, {device}), Tier::device));
      if (host >= total + slack) {
        EXPECT_EQ(bytes(placement, Tier::disk), 0u);
      }
    }
  }
  std::vector<PlaceRule> rules = parse_place_rules("layers.3=disk,*=host");
  for (std::optional<uint64_t> host : {std::optional<uint64_t>(0), std::optional<uint64_t>()}) {
    Placement placement = choose_placement(all_, {total, host}, rules);
    Tier kept = host ? Tier::host : Tier::device;  // without a device they are the same
    for (size_t i = 0; i < placement.size(); ++i) {
      const Param& p = *all_.params[i].param;
      bool disk = p.path.find("layers.3.") != std::string::npos;
      EXPECT_EQ(placement[i], p.pieces.front().vector ? Tier::device
                              : disk                  ? Tier::disk
                                                      : kept)
          << p.path;
    }
  }
}

}  // namespace
}  // namespace sluice
