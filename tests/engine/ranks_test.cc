// Models cut for several ranks, which compute together: each is a thread with a planner of its own,
// and what they compute is what one computes.
#include "src/engine/ranks.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/engine/on_ranks.h"
#include "tests/support/checkpoint.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using test::on_ranks;

// Returns whether config.json allows so many ranks.
bool divides(const fs::path& model, int size) {
  try {
    build_model(test::model_in(model), {0, size});
    return true;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::usage);
    return false;
  }
}

// Returns whether so many ranks have KV blocks of one size.
bool share_blocks(const fs::path& model, int size) {
  const test::How how{.dtype = DtypeChoice::f32};
  const auto fault = test::try_ranks(model, size, how, [](test::OnRank& rank) {
    rank.planner.place(rank.planner.run_shape(8, 8, 1));
  });
  if (!fault) return true;
  EXPECT_EQ(fault->kind(), ErrorKind::usage) << fault->what();
  return false;
}

class RanksTest : public testing::TestWithParam<fs::path> {};

TEST_P(RanksTest, TogetherComputeTheGoldenLogits) {
  test::GoldenFile file(GetParam());
  const test::Golden golden = file.golden(file.prompts() - 1);
  EXPECT_TRUE(divides(GetParam(), 2) || divides(GetParam(), 3));
  for (int size : {1, 2, 3, 4}) {
    if (!divides(GetParam(), size) || !share_blocks(GetParam(), size)) continue;
    SCOPED_TRACE(testing::Message() << size << " ranks");
    const test::How how{.dtype = DtypeChoice::f32, .threads = 1};
    const auto run = [&](const test::How& by) {
      return test::run_on_ranks(GetParam(), golden.ids, std::ssize(golden.greedy), size, by);
    };
    const test::Outcome outcome = run(how);
    file.expect_float32(outcome, golden);
    const test::How otherwise{.dtype = DtypeChoice::f32, .threads = 2, .chunk = 3};
    if (size != 2) continue;
    EXPECT_EQ(run(otherwise).logits, outcome.logits);
  }
}

INSTANTIATE_TEST_SUITE_P(Bundled, RanksTest, testing::ValuesIn(test::bundled_models()),
                         test::golden_name);
INSTANTIATE_TEST_SUITE_P(Shared, RanksTest, testing::ValuesIn(test::shared_models()),
                         test::golden_name);

// A rank reads its rows, and its band of the rows of matrices whose columns ranks divide: all ranks
// together read the checkpoint once, and each as much, also where one has more KV heads.
class RanksReads : public testing::TestWithParam<int> {};

TEST_P(RanksReads, TheirParts) {
  test::TempDir dir;
  test::Random random("Ranks.ReadTheirParts");
  Json config = test::tiny_config();
  config["num_attention_heads"] = 12;
  config["num_key_value_heads"] = GetParam();
  config["head_dim"] = 64;
  config["hidden_size"] = 768;
  config["intermediate_size"] = 2304;
  config["vocab_size"] = 6000;
  config["num_hidden_layers"] = 1;
  test::write_checkpoint(dir.path(), config, test::tiny_tensors(config, random));
  uint64_t whole = 0;
  for (int size : {1, 2, 3, 4}) {
    on_ranks(dir.path(), size, {}, [&](test::OnRank& rank) {
      const LoadedModel& loaded = rank.load(rank.planner.run_shape(16, 8, 1));
      if (size == 1) whole = loaded.report().needed_bytes;
      uint64_t sum = 0, most = 0;
      for (const RankShare& load : loaded.rank_shares()) {
        sum += load.bytes_read;
        most = std::max(most, load.bytes_read);
      }
      EXPECT_EQ(loaded.report().io.bytes_requested, loaded.read_plan().read_bytes());
      EXPECT_LE(static_cast<double>(sum), 1.02 * static_cast<double>(whole)) << size << " ranks";
      EXPECT_LE(static_cast<double>(most), 1.05 / size * static_cast<double>(whole));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(KvHeads, RanksReads, testing::Values(12, 4));

// Steps of several sequences, a fork and swapped blocks are the same on every rank.
TEST(Ranks, FollowAnEngine) {
  const fs::path model = test::bundled_model("llama_rope_dynamic");
  auto run = [&](Planner& planner) {
    LoadedModel loaded(planner, planner.place(planner.run_shape(400, 60, 4, 4)));
    Engine engine(loaded.runner(), nullptr, 4);
    return test::run_requests(engine);
  };
  const test::How how{.dtype = DtypeChoice::f32};
  Planner alone(test::options_for(model, how));
  const auto expected = run(alone);
  on_ranks(model, 2, how, [&](test::OnRank& rank) { EXPECT_EQ(run(rank.planner), expected); });
}

TEST(Ranks, FailTogether) {
  const fs::path model = test::bundled_model("llama_rope_dynamic");
  on_ranks(model, 2, {}, [&](test::OnRank& rank) {
    EXPECT_THROW(rank.planner.need_one_rank("this"), Error);
    rank.planner.place(rank.planner.run_shape(16, 8, 1));  // and ends without a load
  });
  // While they load: the last rank's own copy of the files ends too early.
  test::TempDir copy;
  fs::copy(model, copy.path(), fs::copy_options::recursive);
  test::Meeting loading(2);
  {
    std::vector<std::jthread> ranks;
    for (int r = 0; r < 2; ++r) {
      ranks.emplace_back([&, r] {
        ModelOptions options = test::options_for(r == 1 ? copy.path() : model, {});
        options.ranks = std::make_shared<test::ThreadGroup>(Rank{r, 2}, loading);
        Planner planner(std::move(options));
        std::optional<LoadedModel> followed;
        try {
          if (r == 1) follow(planner, followed, {});
          const auto placed = planner.place(planner.run_shape(16, 8, 1));
          for (const fs::directory_entry& file : fs::directory_iterator(copy.path()))
            if (file.path().filename().string().starts_with("model-"))
              fs::resize_file(file.path(), 4096);
          const LoadedModel loaded(planner, placed);
          ADD_FAILURE();
        } catch (const Error& e) {
          EXPECT_NE(std::string(e.what()).find("rank 1: "), std::string::npos) << e.what();
          EXPECT_NE(std::string(e.what()).find("changed"), std::string::npos) << e.what();
        }
      });
    }
  }
  test::Meeting meeting(2);
  std::vector<std::jthread> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      ModelOptions options = test::options_for(model, {});
      options.ranks = std::make_shared<test::ThreadGroup>(Rank{r, 2}, meeting);
      if (r == 1) options.model = "/nowhere";
      try {
        Planner planner(std::move(options));
        ADD_FAILURE();
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::refused);
        EXPECT_TRUE(std::string(e.what()).starts_with("rank 1: ")) << e.what();
      }
    });
  }
}

}  // namespace
}  // namespace sluice
