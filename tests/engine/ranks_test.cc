// Models cut for several ranks, which compute together: each is a thread with a part of the
// weights, and what they compute is what one computes.
#include <gtest/gtest.h>

#include <barrier>
#include <numeric>
#include <thread>

#include "src/base/error.h"
#include "src/memory/buffer.h"
#include "src/models/rope.h"
#include "tests/engine/in_memory.h"
#include "tests/quant/storage.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

// State that ranks share; they are threads.
struct Meeting {
  explicit Meeting(int size) : barrier(size), parts(static_cast<size_t>(size)) {}
  std::barrier<> barrier;
  std::vector<Tensor> parts;
};

class ThreadGroup final : public Group {
 public:
  ThreadGroup(Rank rank, Meeting& meeting) : rank_(rank), meeting_(meeting) {}
  Rank rank() const override { return rank_; }
  void sum(Tensor y, DeviceStream&) const override {
    meeting_.parts[static_cast<size_t>(rank_.rank)] = y;
    meeting_.barrier.arrive_and_wait();
    std::vector<float> total(static_cast<size_t>(y.rows * y.cols));
    for (Tensor& part : meeting_.parts) {
      for (int64_t i = 0; i < y.rows * y.cols; ++i)
        total[static_cast<size_t>(i)] += part.row<float>(i / y.cols)[i % y.cols];
    }
    meeting_.barrier.arrive_and_wait();
    for (int64_t i = 0; i < y.rows * y.cols; ++i)
      y.row<float>(i / y.cols)[i % y.cols] = total[static_cast<size_t>(i)];
  }

 private:
  Rank rank_;
  Meeting& meeting_;
};

// One rank's part of a model in memory.
class RankModel {
 public:
  RankModel(const fs::path& directory, Rank rank)
      : loaded_(directory, rank, {uint64_t{256} * 1024, uint64_t{1024} * 1024}) {}

  // Logits of every token.
  std::vector<std::vector<float>> compute(const std::vector<int32_t>& ids, const Group& group) {
    const CausalLM& root = *loaded_.model.root;
    const DecoderSpec& spec = root.spec();
    const int64_t rows = std::ssize(ids);
    auto act_memory = memory(Activations::bytes(spec, rows, root.rank()));
    Activations act(spec, rows, root.rank(), act_memory);
    ThreadPool pool(1);
    auto scratch = memory(cpu_workspace_bytes(root.workspace_needs(rows), 1));
    auto kernels = make_cpu_kernels(Isa::automatic, Compute::f32, pool, scratch);
    const int64_t half = spec.angle_columns();
    const uint64_t angles = static_cast<uint64_t>(rows * half) * sizeof(float);
    Tensor cos{memory(angles).data(), DType::f32, rows, half, half};
    Tensor sin{memory(angles).data(), DType::f32, rows, half, half};
    rope_tables(spec.ropes, {0, rows}, cos, sin);
    std::vector<std::vector<LayerKv>> mixers;
    for (const std::vector<KvSpec>& specs : root.kv_specs()) {
      if (specs.front().kind == KvKind::state) {
        mixers.push_back(states(specs));
        continue;
      }
      if (const auto of = specs.front().shared_with) {
        mixers.push_back(mixers[*of]);
        continue;
      }
      KvCache cache = kv_cache_of(specs.front(), {.dtype = DType::f32}, rows);
      cache.blocks = 1;
      cache.block_stride = kv_block_bytes(cache);
      cache.keys = memory(static_cast<uint64_t>(cache.block_stride)).data();
      cache.values = cache.latent ? cache.keys : cache.keys + kv_key_bytes(cache);
      mixers.push_back({LayerKv{0, cache}});
    }
    const std::vector<int32_t> table{0};
    const SequenceChunk chunk{0, rows, 0, table};
    std::vector<int64_t> slots(ids.size());
    std::iota(slots.begin(), slots.end(), 0);
    std::vector<int32_t> positions(ids.size());
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(spec.first_position));
    const std::vector<float> slopes = root.alibi_slopes();
    const KvRows kv{{&chunk, 1}, slots};
    const StepRows step{.ids = ids,
                        .host_ids = ids,
                        .kv = {&kv, 1},
                        .cos = cos,
                        .sin = sin,
                        .positions = positions,
                        .host_positions = positions,
                        .alibi_slopes = slopes};
    for (size_t unit = 0; unit < root.forward_units(); ++unit)
      root.forward({*kernels, group}, {step, mixers}, act, unit);
    Tensor logits{memory(static_cast<uint64_t>(rows * root.logits_cols()) * sizeof(float)).data(),
                  DType::f32, rows, root.logits_cols(), root.logits_cols()};
    root.logits({*kernels, group}, act.normed(rows).columns(0, spec.hidden_size), logits);
    std::vector<std::vector<float>> all;
    for (int64_t r = 0; r < rows; ++r)
      all.emplace_back(logits.row<float>(r), logits.row<float>(r) + spec.vocab_size);
    return all;
  }

 private:
  // Each alone in a page.
  std::vector<LayerKv> states(const std::vector<KvSpec>& specs) {
    std::vector<LayerKv> all;
    for (const KvSpec& spec : specs) {
      const int64_t rows = spec.heads * spec.key_dim, bytes = kv_state_bytes(spec);
      all.push_back({.state = {.pages = memory(static_cast<uint64_t>(bytes)).data(),
                               .page_bytes = bytes,
                               .blocks = 1,
                               .rows = rows,
                               .cols = spec.value_dim,
                               .page_rows = rows}});
    }
    return all;
  }
  std::span<std::byte> memory(uint64_t bytes) {
    return {memory_.emplace_back(test::aligned_bytes(bytes)).get(), bytes};
  }

  test::InMemory loaded_;
  std::vector<test::AlignedBytes> memory_;
};

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

class RanksTest : public testing::TestWithParam<fs::path> {};

TEST_P(RanksTest, TogetherComputeTheGoldenLogits) {
  test::GoldenFile file(GetParam());
  const test::Golden golden = file.golden(file.prompts() - 1);
  EXPECT_TRUE(divides(GetParam(), 2) || divides(GetParam(), 3));
  for (int size : {1, 2, 3, 4}) {
    if (!divides(GetParam(), size)) continue;
    SCOPED_TRACE(testing::Message() << size << " ranks");
    Meeting meeting(size);
    std::vector<test::Outcome> outcomes(static_cast<size_t>(size));
    std::vector<std::jthread> ranks;
    for (int r = 0; r < size; ++r) {
      ranks.emplace_back([&, r] {
        const Rank rank{r, size};
        outcomes[static_cast<size_t>(r)].logits =
            RankModel(GetParam(), rank).compute(golden.ids, ThreadGroup(rank, meeting));
      });
    }
    ranks.clear();
    file.expect_float32(outcomes[0], golden);
    for (const test::Outcome& other : outcomes) EXPECT_EQ(other.logits, outcomes[0].logits);
  }
}

INSTANTIATE_TEST_SUITE_P(Bundled, RanksTest, testing::ValuesIn(test::bundled_models()),
                         test::golden_name);
INSTANTIATE_TEST_SUITE_P(Shared, RanksTest, testing::ValuesIn(test::shared_models()),
                         test::golden_name);

}  // namespace
}  // namespace sluice
