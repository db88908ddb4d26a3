// The byte plan: every wanted byte once and in disk order, every fault in one message.
#include "src/plan/compile.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <tuple>

#include "src/base/error.h"
#include "src/plan/bind.h"
#include "src/plan/memory_plan.h"
#include "src/plan/spill_layout.h"
#include "tests/support/checkpoint.h"

namespace sluice {
namespace {

struct Checkpoint {
  test::TempDir dir;
  Checkpoint(const Json& config, const std::vector<test::TinyTensor>& tensors, size_t shards = 1) {
    test::write_checkpoint(dir.path(), config, tensors, shards);
  }
  ReadPlan plan(const QuantizeRequest& quantize, const Staging& staging, Rank rank = {}) {
    index.emplace(io::open_checkpoint(dir.path()));
    model = build_model(dir.path(), rank, &*index);
    return compile(model, *index, quantize, staging);
  }
  Model model;
  std::optional<io::CheckpointIndex> index;
};

QuantizeRequest request(const char* scheme) {
  return {*find_quant_scheme(scheme), {ParamRole::linear}, false};
}

std::string refusal(const Json& config, const std::vector<test::TinyTensor>& tensors) {
  Checkpoint checkpoint(config, tensors);
  try {
    checkpoint.plan(request("none"), {1 << 20, 1 << 22});
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::refused);
    return e.what();
  }
  return "accepted";
}

// Every element of this rank's cut of every tensor is in exactly one encoded move, at the right
// place in the file.
void expect_complete(const ReadPlan& plan) {
  std::map<uint32_t, std::set<int64_t>> rows_seen;
  std::pair<uint32_t, uint64_t> last{0, 0};
  for (const Span& s : plan.spans) {
    EXPECT_LE(s.length + 8192, plan.slot_bytes);
    EXPECT_GE(std::pair(s.file, s.offset + (s.encode && !s.measure ? s.length : 0)), last)
        << "disk order";
    if (!s.measure || s.encode) last = {s.file, s.offset};
    for (uint32_t m = s.first_move; m < s.first_move + s.moves; ++m) {
      const Move& move = plan.moves[m];
      const TensorPlan& t = plan.tensors[move.tensor];
      const Piece& piece = plan.params[t.param].param->pieces[t.piece];
      uint64_t element = static_cast<uint64_t>(dtype_bytes(t.stored->dtype));
      int64_t first = (piece.cut.row + move.first_row) * piece.cols + piece.cut.col;
      EXPECT_EQ(s.offset + move.offset, t.stored->offset + static_cast<uint64_t>(first) * element);
      uint64_t end =
          move.offset +
          (static_cast<uint64_t>((move.rows - 1) * piece.cols + piece.cut.cols)) * element;
      EXPECT_LE(end, s.length);
      EXPECT_EQ(s.unit, plan.params[t.param].unit);
      if (!s.encode) continue;
      for (int64_t r = 0; r < move.rows; ++r)
        EXPECT_TRUE(rows_seen[move.tensor].insert(move.first_row + r).second);
    }
  }
  for (uint32_t t = 0; t < plan.tensors.size(); ++t) {
    const Piece& piece = plan.params[plan.tensors[t].param].param->pieces[plan.tensors[t].piece];
    EXPECT_EQ(std::ssize(rows_seen[t]), piece.cut.rows) << plan.tensors[t].stored->name;
  }
}

TEST(Compile, ReadsEveryByteOnceInDiskOrder) {
  test::Random random("compile");
  for (int round = 0; round < 30; ++round) {
    Json config = test::tiny_config();
    config["hidden_size"] = random.between(1, 40) * 6;
    config["intermediate_size"] = random.between(1, 300);
    config["vocab_size"] = random.between(1, 900);
    config["tie_word_embeddings"] = random.uniform() < 0.5;
    config["attention_bias"] = random.uniform() < 0.5;
    config["mlp_bias"] = random.uniform() < 0.5;
    std::vector<test::TinyTensor> tensors = test::tiny_tensors(config, random);
    std::shuffle(tensors.begin(), tensors.end(), random.engine());
    Checkpoint checkpoint(config, tensors, static_cast<size_t>(random.between(1, 4)));
    for (const QuantScheme& scheme : quant_schemes()) {
      Staging staging{static_cast<uint64_t>(random.between(4, 64)) * 4096,
                      static_cast<uint64_t>(random.between(0, 1 << 20))};
      ReadPlan plan = checkpoint.plan(request(std::string(scheme.name).c_str()), staging);
      expect_complete(plan);
      uint64_t needed = 0;
      for (const TensorPlan& t : plan.tensors) needed += plan.needed_bytes(t);
      EXPECT_EQ(needed, checkpoint.index->total_bytes());
      bool twice =
          std::ranges::any_of(plan.tensors, [](const TensorPlan& t) { return t.read_twice; });
      // Small tensors that share a read may have small gaps between them; shuffled ones seldom do.
      if (!twice) {
        EXPECT_LE(plan.read_bytes(), needed + 4096 * plan.moves.size());
      }
      EXPECT_GE(plan.read_bytes(), needed);
      EXPECT_TRUE(has_tensor_scale(scheme.group) || !twice);
    }
  }
}

TEST(Compile, EachRankReadsItsCutAndRanksTogetherTheWhole) {
  test::Random random("ranks");
  Json config = test::tiny_config();
  config["num_attention_heads"] = 12;
  config["num_key_value_heads"] = 2;
  config["intermediate_size"] = 50;
  config["vocab_size"] = 69;
  Checkpoint checkpoint(config, test::tiny_tensors(config, random), 2);
  for (int size : {1, 2, 4}) {
    std::map<std::string, std::set<std::pair<int64_t, int64_t>>> seen;
    for (int r = 0; r < size; ++r) {
      ReadPlan plan = checkpoint.plan(request("fp8_per_channel"), {1 << 16, 1 << 18}, {r, size});
      expect_complete(plan);
      for (const TensorPlan& t : plan.tensors) {
        const Cut& cut = plan.params[t.param].param->pieces[t.piece].cut;
        for (int64_t row = cut.row; row < cut.row + cut.rows; ++row) {
          for (int64_t col = cut.col; col < cut.col + cut.cols; ++col)
            seen[t.stored->name].insert({row, col});
        }
      }
    }
    for (const io::StoredTensor& t : checkpoint.index->tensors()) {
      EXPECT_EQ(std::ssize(seen[t.name]), t.shape.elements())
          << t.name << " over " << size << " ranks";
    }
  }
}

TEST(Compile, LargePerTensorScalesReadTwiceOnlyBeyondTheRing) {
  test::Random random("twice");
  Json config = test::tiny_config();
  config["hidden_size"] = 96;
  config["intermediate_size"] = 2000;
  Checkpoint checkpoint(config, test::tiny_tensors(config, random));
  // The MLP's matrices, of 375 KiB, take six reads of up to 64 KiB, and the ring has four slots.
  ReadPlan small = checkpoint.plan(request("fp8_per_tensor"), {16 * 4096, 4 * 16 * 4096});
  uint64_t again = 0;
  for (const TensorPlan& t : small.tensors) {
    EXPECT_EQ(t.read_twice, t.stored->name.find(".mlp.") != std::string::npos) << t.stored->name;
    if (t.read_twice) again += t.stored->bytes;
  }
  EXPECT_EQ(again, 9u * 96 * 2000 * 2);
  ReadPlan large = checkpoint.plan(request("fp8_per_tensor"), {16 * 4096, 64 * 16 * 4096});
  EXPECT_TRUE(
      std::ranges::none_of(large.tensors, [](const TensorPlan& t) { return t.read_twice; }));
  EXPECT_EQ(large.read_bytes() + again, small.read_bytes());
}

TEST(Compile, EveryFaultIsInOneMessage) {
  test::Random random("faults");
  Json config = test::tiny_config();
  std::vector<test::TinyTensor> tensors = test::tiny_tensors(config, random);
  EXPECT_EQ(refusal(config, tensors), "accepted");
  std::erase_if(tensors,
                [](const auto& t) { return t.name == "model.layers.1.self_attn.k_proj.weight"; });
  for (test::TinyTensor& t : tensors) {
    if (t.name == "model.layers.0.mlp.down_proj.weight") std::swap(t.shape[0], t.shape[1]);
    if (t.name == "model.layers.2.mlp.up_proj.weight") t.dtype = "I16";
    if (t.name == "model.norm.weight") t.shape = {48, 1};
  }
  tensors.push_back({"model.layers.0.self_attn.surprise.weight", {1}, "BF16", "xx"});
  std::string message = refusal(config, tensors);
  for (const char* part : {"k_proj.weight is missing", "down_proj.weight has shape [40, 48]",
                           "exchanged", "I16", "model.norm.weight", "surprise"}) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
}

TEST(Compile, KnownTensorsThatAreNotNeededAreListed) {
  test::Random random("ignorable");
  Json config = test::tiny_config();
  std::vector<test::TinyTensor> tensors = test::tiny_tensors(config, random);
  config["tie_word_embeddings"] = true;
  tensors.back().bytes = tensors.front().bytes;  // a copy of the embedding, which stays in the file
  std::set<std::string> ignored{"lm_head.weight", "scaled_fp8"};
  tensors.push_back({"scaled_fp8", {0}, "F8_E4M3", ""});  // a tag, without elements
  for (const char* name :
       {"model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.cos_cached",
        "model.layers.1.self_attn.sin_cached", "inv_freq", "rope.freqs", "model.position_ids",
        "model.layers.0.self_attn.masked_bias", "model.layers.0.attn.bias",
        "optimizer.state.0.step", "lr_scheduler.last", "model.norm.weight.exp_avg"}) {
    tensors.push_back({name, {1}, "F32", "xxxx"});
    ignored.insert(name);
  }
  Checkpoint checkpoint(config, tensors);
  ReadPlan plan = checkpoint.plan(request("none"), {1 << 16, 1 << 18});
  EXPECT_EQ(std::set<std::string>(plan.ignored.begin(), plan.ignored.end()), ignored);
  tensors.push_back({"model.layers.0.self_attn.q_proj.lora_A.weight", {1}, "F32", "xxxx"});
  EXPECT_NE(refusal(config, tensors).find("lora_A"), std::string::npos);
}

// Known from a shard's header alone: taken where it is needed, else passed over.
TEST(Compile, TensorsThatTheIndexDoesNotList) {
  test::Random random("unlisted");
  Json config = test::tiny_config();
  std::vector<test::TinyTensor> tensors = test::tiny_tensors(config, random);
  tensors.push_back({"surprise", {1}, "F32", "xxxx"});
  EXPECT_NE(refusal(config, tensors).find("surprise"), std::string::npos);
  test::TempDir dir;
  test::write_checkpoint(dir.path(), config, tensors, 2);
  Json index = Json::parse(test::read_file(dir / "model.safetensors.index.json"));
  for (const char* name : {"surprise", "model.norm.weight"}) index["weight_map"].erase(name);
  test::write_file(dir / "model.safetensors.index.json", index.dump());
  io::CheckpointIndex checkpoint = io::open_checkpoint(dir.path());
  Model model = build_model(dir.path(), Rank{}, &checkpoint);
  ReadPlan plan = compile(model, checkpoint, request("none"), {1 << 16, 1 << 18});
  EXPECT_EQ(plan.ignored, std::vector<std::string>{"surprise"});
}

TEST(Compile, OnlyWhatWasAskedIsQuantized) {
  test::Random random("roles");
  Json config = test::tiny_config();
  Checkpoint checkpoint(config, test::tiny_tensors(config, random));
  auto dtype_of = [](const ReadPlan& plan, std::string_view path) {
    for (const ParamPlan& p : plan.params) {
      if (p.param->path == path) return p.format.dtype;
    }
    ADD_FAILURE() << path;
    return DType::f64;
  };
  ReadPlan standard = checkpoint.plan(request("fp8_per_channel"), {1 << 16, 1 << 18});
  EXPECT_EQ(dtype_of(standard, "model.layers.0.mlp.down_proj.weight"), DType::f8_e4m3);
  EXPECT_EQ(dtype_of(standard, "model.embed_tokens.weight"), DType::bf16);
  EXPECT_EQ(dtype_of(standard, "lm_head.weight"), DType::bf16);
  EXPECT_EQ(dtype_of(standard, "model.norm.weight"), DType::f32);
  QuantizeRequest all = request("fp8_per_channel");
  all.roles = {ParamRole::linear, ParamRole::embedding, ParamRole::head, ParamRole::norm};
  ReadPlan everything = checkpoint.plan(all, {1 << 16, 1 << 18});
  for (const char* path : {"model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"}) {
    EXPECT_EQ(dtype_of(everything, path), DType::f8_e4m3) << path;
  }
}

TEST(MemoryPlan, RefusalNamesABudgetThatWorks) {
  test::Random random("budget");
  Json config = test::tiny_config();
  Checkpoint checkpoint(config, test::tiny_tensors(config, random));
  checkpoint.plan(request("none"), {1 << 16, 1 << 18});
  ThreadPool pool(1);
  std::unique_ptr<Backend> backend = make_cpu_backend(Isa::automatic, pool);
  RunShape shape{.backend = backend.get(), .max_tokens = 100, .longest_prompt = 50};
  const CausalLM& root = *checkpoint.model.root;
  ReadPlan all = lay_out(checkpoint.model, *checkpoint.index, request("none"));
  MemoryPlan smallest = smallest_plan(root, all, shape, 1 << 20);
  EXPECT_NO_THROW(place(root, all, shape, smallest.needed(), 1 << 20));
  try {
    place(root, all, shape, smallest.needed() - 1, 1 << 20);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::no_fit);
    EXPECT_NE(std::string(e.what()).find("--memory"), std::string::npos) << e.what();
  }
}

// Sizes of alike tensors are computed once, as there may be many experts.
TEST(Compile, AlikeTensorsHaveTheTilesThatEachHasByItself) {
  size_t alike = 0;
  for (const char* name : {"mixtral", "gpt_oss", "kimi_k2", "qwen3_5_moe", "gemma4_e"}) {
    SCOPED_TRACE(name);
    const std::filesystem::path path = test::source_dir() / "tests/data/models" / name;
    const io::CheckpointIndex index = io::open_checkpoint(path);
    Model model = build_model(path, {}, &index);
    for (const char* scheme : {"none", "int8"}) {
      const ReadPlan all = lay_out(model, index, request(scheme));
      ReadPlan apart = all;
      Placement streamed;
      for (const ParamPlan& p : all.params)
        streamed.push_back(p.transposed || p.param->pieces[0].vector ? Tier::device : Tier::disk);
      for (uint32_t t = 0; t < apart.tensors.size(); ++t) {
        alike += apart.tensors[t].alike != t;
        apart.tensors[t].alike = t;
      }
      const Staging staging{4096, 16384};
      const ReadPlan once = compile(all, staging, streamed),
                     each = compile(apart, staging, streamed);
      ASSERT_EQ(once.sweep.size(), each.sweep.size());
      for (size_t i = 0; i < once.sweep.size(); ++i) {
        const TiledTensor &a = once.sweep[i], &b = each.sweep[i];
        EXPECT_EQ(
            std::tuple(a.tensor, a.first_tile, a.tiles, a.tile_rows, a.run_rows, a.run_tiles),
            std::tuple(b.tensor, b.first_tile, b.tiles, b.tile_rows, b.run_rows, b.run_tiles));
      }
      EXPECT_EQ(once.tile_bytes, each.tile_bytes);
      EXPECT_EQ(sweep_bytes_of_units(once, {}), sweep_bytes_of_units(each, {}));
    }
  }
  EXPECT_GT(alike, 0u);
}

// Ranks of which one has more of what each reads for itself.
TEST(Bands, HaveRanksReadAsMuch) {
  constexpr int64_t kRows = 2400;
  const std::vector<uint64_t> own{100, 100, 160};
  const Bands bands(own, 240);  // 200 each
  EXPECT_EQ(bands.begin(kRows, 0), 0);
  EXPECT_NEAR(static_cast<double>(bands.begin(kRows, 1)), 1000, 1);
  EXPECT_NEAR(static_cast<double>(bands.begin(kRows, 2)), 2000, 1);
  EXPECT_EQ(bands.begin(kRows, 3), kRows);
  const std::vector<uint64_t> alike(3);
  for (int r = 0; r <= 3; ++r) EXPECT_EQ(Bands(alike, 240).begin(7, r), 7 * r / 3);
  EXPECT_GT(Bands(std::vector<uint64_t>{0, 1000}, 10).begin(16, 2) -
                Bands(std::vector<uint64_t>{0, 1000}, 10).begin(16, 1),
            0)
      << "each has a row, even where no bands can make it even";
}

}  // namespace
}  // namespace sluice
