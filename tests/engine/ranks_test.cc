// Models cut for several ranks, which compute together: each is a thread with a session of its own,
// and what they compute is what one computes.
#include <gtest/gtest.h>

#include <thread>

#include "src/base/error.h"
#include "tests/engine/how.h"
#include "tests/support/thread_group.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

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

// Does `lead` with the session of rank 0, which the others follow.
template <class Lead>
void on_ranks(const fs::path& model, int size, const test::How& how, const Lead& lead) {
  test::Meeting meeting(size);
  std::vector<std::jthread> ranks;
  for (int r = 0; r < size; ++r) {
    ranks.emplace_back([&, r] {
      SessionOptions options = test::options_for(model, how);
      options.ranks = std::make_shared<test::ThreadGroup>(Rank{r, size}, meeting);
      Session session(std::move(options));
      if (r > 0) return session.follow({});
      lead(session);
    });
  }
}

// The outcome of a golden's prompt and greedy tokens on so many ranks.
test::Outcome run_on_ranks(const fs::path& model, const test::Golden& golden, int size,
                           const test::How& how) {
  test::Outcome outcome;
  on_ranks(model, size, how, [&](Session& session) {
    const int64_t prompt = std::ssize(golden.ids), more = std::ssize(golden.greedy);
    session.place(session.run_shape(prompt + more, prompt, prompt));
    LoadProgress progress;
    session.load(progress, {});
    outcome = test::run_prompt(session, golden.ids, more, how.chunk);
  });
  return outcome;
}

class RanksTest : public testing::TestWithParam<fs::path> {};

TEST_P(RanksTest, TogetherComputeTheGoldenLogits) {
  test::GoldenFile file(GetParam());
  const test::Golden golden = file.golden(file.prompts() - 1);
  EXPECT_TRUE(divides(GetParam(), 2) || divides(GetParam(), 3));
  for (int size : {1, 2, 3, 4}) {
    if (!divides(GetParam(), size)) continue;
    SCOPED_TRACE(testing::Message() << size << " ranks");
    const test::How how{.dtype = DtypeChoice::f32, .threads = 1};
    const test::Outcome outcome = run_on_ranks(GetParam(), golden, size, how);
    file.expect_float32(outcome, golden);
    const test::How otherwise{.dtype = DtypeChoice::f32, .threads = 2, .chunk = 3};
    if (size != 2) continue;
    EXPECT_EQ(run_on_ranks(GetParam(), golden, size, otherwise).logits, outcome.logits);
  }
}

INSTANTIATE_TEST_SUITE_P(Bundled, RanksTest, testing::ValuesIn(test::bundled_models()),
                         test::golden_name);
INSTANTIATE_TEST_SUITE_P(Shared, RanksTest, testing::ValuesIn(test::shared_models()),
                         test::golden_name);

// A rank reads its rows, and of matrices whose columns ranks divide whole rows. Every rank reads
// what is not divided; more ranks than KV heads share these.
TEST(Ranks, ReadTheirParts) {
  const fs::path model = test::source_dir() / "tools/demo-model";  // of 2 KV heads
  constexpr double kBlocks = 1.05;  // whole blocks of a disk are read
  uint64_t whole = 0, on_every_rank = 0, of_kv_heads = 0;
  {
    Session session(test::options_for(model, {}));
    session.place(session.run_shape(16, 8, 1));
    for (const TensorPlan& t : session.read_plan().tensors) {
      const uint64_t bytes = session.read_plan().needed_bytes(t);
      const std::string& name = t.stored->name;
      whole += bytes;
      if (name.ends_with("o_proj.weight") || name.ends_with("down_proj.weight") ||
          name.find("norm") != std::string::npos)
        on_every_rank += bytes;
      if (name.ends_with("k_proj.weight") || name.ends_with("v_proj.weight")) of_kv_heads += bytes;
    }
  }
  for (uint64_t size : {2, 4}) {
    const uint64_t least = whole + (size - 1) * on_every_rank + (size / 2 - 1) * of_kv_heads;
    on_ranks(model, static_cast<int>(size), {}, [&](Session& session) {
      session.place(session.run_shape(16, 8, 1));
      LoadProgress progress;
      session.load(progress, {});
      uint64_t sum = 0;
      for (const RankLoad& load : session.rank_loads()) sum += load.bytes_read;
      EXPECT_GE(sum, least);
      EXPECT_LE(static_cast<double>(sum), kBlocks * static_cast<double>(least));
    });
  }
}

// Steps of several sequences, a fork and swapped blocks are the same on every rank.
TEST(Ranks, FollowAnEngine) {
  const fs::path model = test::bundled_model("llama_rope_dynamic");
  auto run = [&](Session& session) {
    session.place(session.run_shape(400, 60, 4, 4));
    LoadProgress progress;
    session.load(progress, {});
    Engine engine(session.runner(), nullptr, 4);
    for (int i = 0; i < 6; ++i) {
      Request request;
      for (int t = 0; t < 10 + 8 * i; ++t) request.prompt.push_back(3 + (t * (i % 3 + 1)) % 50);
      request.max_tokens = 12;
      request.n = i == 2 ? 2 : 1;
      request.lookup = true;
      request.sampling.temperature = i == 2 ? 1 : 0;
      request.sampling.seed = 7;
      engine.add(std::move(request));
    }
    std::vector<std::vector<int32_t>> ids;
    std::vector<OutputId> ended;
    while (!engine.idle())
      for (const Output& out : engine.step({}))
        if (out.finished) ended.push_back(out.id);
    std::ranges::sort(ended);
    for (OutputId id : ended) ids.push_back(engine.take(id).ids);
    return ids;
  };
  const test::How how{.dtype = DtypeChoice::f32};
  Session alone(test::options_for(model, how));
  const auto expected = run(alone);
  on_ranks(model, 2, how, [&](Session& session) { EXPECT_EQ(run(session), expected); });
}

TEST(Ranks, FailTogether) {
  const fs::path model = test::bundled_model("llama_rope_dynamic");
  on_ranks(model, 2, {}, [&](Session& session) {
    EXPECT_THROW(session.need_one_rank("this"), Error);
    session.place(session.run_shape(16, 8, 1));  // and ends without a load
  });
  test::Meeting meeting(2);
  std::vector<std::jthread> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r] {
      SessionOptions options = test::options_for(model, {});
      options.ranks = std::make_shared<test::ThreadGroup>(Rank{r, 2}, meeting);
      if (r == 1) options.model = "/nowhere";
      try {
        Session session(std::move(options));
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
