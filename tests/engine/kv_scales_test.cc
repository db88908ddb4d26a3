// A run with the checkpoint's scales of the KV cache is, bit for bit, the model over caches that
// have these scales.
#include "tests/support/kv_scales.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/engine/loaded_model.h"

namespace sluice {
namespace {

constexpr int64_t kLayers = 3, kScaledTokens = 23;

using Row = std::vector<float>;

class KvScalesRun : public testing::TestWithParam<DType> {
 protected:
  KvScalesRun() {
    Json config = test::tiny_config();
    std::vector<test::TinyTensor> tensors = test::tiny_tensors(config, random_);
    test::write_checkpoint(plain_.path(), config, tensors);
    test::add_kv_scales(tensors, kLayers);
    test::write_checkpoint(scaled_.path(), config, tensors, 2);
    for (int64_t i = 0; i < kScaledTokens; ++i)
      ids_.push_back(static_cast<int32_t>(random_.between(0, 36)));
  }

  test::Random random_{"runs with kv scales"};
  test::TempDir plain_, scaled_;
  std::vector<int32_t> ids_;
};

class LoadedWithScales {
 public:
  LoadedWithScales(const std::filesystem::path& model, DType kv_dtype)
      : planner_(options(model, kv_dtype)) {
    loaded_.emplace(planner_,
                    planner_.place(planner_.run_shape(2 * kScaledTokens, kScaledTokens, 1)));
  }
  Planner& planner() { return planner_; }
  LoadedModel& loaded() { return *loaded_; }

  // The last token's logits, after a prompt in chunks.
  Row run(const std::vector<int32_t>& ids) {
    Runner& runner = loaded_->runner();
    Sequence sequence = runner.new_sequence();
    Tensor hidden;
    for (std::span<const int32_t> rest = ids; !rest.empty();) {
      size_t rows = std::min<size_t>(rest.size(), 5);
      hidden = runner.decode(sequence, rest.first(rows));
      hidden = hidden.rows_from(hidden.rows - 1, 1);
      rest = rest.subspan(rows);
    }
    Tensor logits = runner.logits(hidden);
    return {logits.row<float>(0), logits.row<float>(0) + logits.cols};
  }

  // The same, computed by the model alone over one block for all tokens.
  Row compute(const std::vector<int32_t>& ids, const std::vector<KvScales>& scales) {
    const CausalLM& model = *planner_.checkpoint().model().root;
    auto rows = std::ssize(ids);
    auto buffer = [&](uint64_t bytes) {
      return Buffer(planner_.machine().ledger(), Use::activations, "test", bytes,
                    Buffer::Touch::now);
    };
    Buffer act_memory = buffer(Activations::bytes(model.spec(), rows, model.rank()));
    Activations act(model.spec(), rows, model.rank(), act_memory.bytes());
    Buffer scratch =
        buffer(cpu_workspace_bytes(model.workspace_needs(rows), planner_.machine().pool().size()));
    auto kernels = make_cpu_kernels(Isa::automatic, planner_.compute(), planner_.machine().pool(),
                                    scratch.bytes());
    const int64_t half = model.spec().angle_columns();
    Row angles(static_cast<size_t>(2 * rows * half));
    Tensor cos{reinterpret_cast<std::byte*>(angles.data()), DType::f32, rows, half, half};
    Tensor sin{reinterpret_cast<std::byte*>(&angles[angles.size() / 2]), DType::f32, rows, half,
               half};
    rope_tables(model.spec().ropes, {0, rows}, cos, sin);

    std::vector<Buffer> memory;
    const KvSpec spec = model.kv_specs().front().front();
    std::vector<std::vector<LayerKv>> mixers;
    for (const KvScales& s : scales) {
      KvCache cache = kv_cache_of(spec, {.dtype = planner_.kv_dtype(), .scales = s}, rows);
      cache.blocks = 1;
      cache.block_stride = kv_block_bytes(cache);
      cache.keys = memory.emplace_back(buffer(static_cast<uint64_t>(cache.block_stride))).data();
      cache.values = cache.keys + kv_key_bytes(cache);
      mixers.push_back({LayerKv{0, cache}});
    }
    const std::vector<int32_t> table{0};
    const SequenceChunk chunk{0, rows, 0, table};
    std::vector<int64_t> slots(ids.size());
    std::iota(slots.begin(), slots.end(), 0);
    const KvRows kv{{&chunk, 1}, slots};
    const SoloGroup group;
    for (size_t unit = 0; unit < model.forward_units(); ++unit)
      model.forward({*kernels, group},
                    {{.ids = ids, .host_ids = ids, .kv = {&kv, 1}, .cos = cos, .sin = sin}, mixers},
                    act, unit);

    Row logits(static_cast<size_t>(model.logits_cols()));
    Tensor last = act.normed(rows).columns(0, model.spec().hidden_size).rows_from(rows - 1, 1);
    model.logits({*kernels, group}, last,
                 {reinterpret_cast<std::byte*>(logits.data()), DType::f32, 1, model.logits_cols(),
                  model.logits_cols()});
    logits.resize(static_cast<size_t>(model.spec().vocab_size));
    return logits;
  }

 private:
  static ModelOptions options(const std::filesystem::path& model, DType kv_dtype) {
    ModelOptions o;
    o.model = model;
    o.kv_dtype = kv_dtype;
    o.threads = 2;
    o.block_size = 4;
    return o;
  }
  Planner planner_;
  std::optional<LoadedModel> loaded_;
};

TEST_P(KvScalesRun, UsesEachLayersOwn) {
  LoadedWithScales scaled(scaled_.path(), GetParam());
  LoadedWithScales plain(plain_.path(), GetParam());
  std::vector<KvScales> scales;
  for (int64_t l = 0; l < kLayers; ++l)
    scales.push_back({test::key_scale(l), test::value_scale(l)});
  Row have = scaled.run(ids_);
  EXPECT_EQ(have, plain.compute(ids_, scales));
  EXPECT_EQ(plain.run(ids_), plain.compute(ids_, std::vector<KvScales>(kLayers)));
  EXPECT_NE(have, plain.run(ids_));
  std::swap(scales[0], scales[1]);
  EXPECT_NE(have, plain.compute(ids_, scales));
}

TEST_P(KvScalesRun, OtherTypesIgnoreThem) {
  LoadedWithScales scaled(scaled_.path(), DType::bf16);
  LoadedWithScales plain(plain_.path(), DType::bf16);
  EXPECT_TRUE(scaled.planner().checkpoint().model().root->kv_scales().empty());
  EXPECT_EQ(std::ssize(scaled.loaded().read_plan().ignored), 2 * kLayers);
  EXPECT_EQ(scaled.run(ids_), plain.run(ids_));
}

INSTANTIATE_TEST_SUITE_P(Types, KvScalesRun, testing::Values(DType::f8_e4m3, DType::f8_e5m2),
                         [](const auto& p) { return std::string(dtype_name(p.param)); });

}  // namespace
}  // namespace sluice
