// Every element of every parameter, on each road that a weight takes into memory, compared with
// encode_reference of the checkpoint's own rows. The expected bytes follow from the tensors that
// the test wrote and from the definition of tensor parallelism alone: neither bind, nor compile,
// nor their moves have a part in it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <span>

#include "src/device/host_device.h"
#include "src/load/spill_directory.h"
#include "src/load/spill_writer.h"
#include "src/load/streamer.h"
#include "src/load/tile_stream.h"
#include "src/plan/spill_window.h"
#include "tests/load/expected.h"
#include "tests/load/loaded_ranks.h"
#include "tests/support/fusion.h"
#include "tests/support/sanitized.h"

namespace sluice {
namespace {

using test::ExpectedParam;
using test::Fusion;

constexpr uint64_t kFirstSeed = 1;
constexpr uint64_t kModels = 16;
// Cases that a test must have met, of the `usual` number: a sanitized build runs a sixth of them.
size_t at_least(size_t usual) { return test::is_brief() ? 0 : usual; }

struct Scenario {
  test::Random random;
  test::TempDir dir;
  Json config;
  std::vector<test::TinyTensor> tensors;  // one for each part of a layer
  std::vector<Fusion> fusions;            // and how the checkpoint has them
  Rank rank;
  QuantizeRequest quantize;
  test::Schemes schemes;  // that its rules give to parts of linear layers
  Staging staging;
  LoadOptions options;
  Model model;
  std::optional<io::CheckpointIndex> index;
  std::vector<ExpectedParam> expected;

  explicit Scenario(uint64_t seed) : random(seed) {
    config = random_config();
    tensors = test::tiny_tensors(config, random);
    for (int64_t l = 0; l < config["num_hidden_layers"].get<int64_t>(); ++l) fuse_layer(l);
    store_in_random_types();
    std::vector<test::TinyTensor> stored = tensors;
    for (const Fusion& f : fusions) fuse(f, stored);
    std::ranges::shuffle(stored, random.engine());
    test::write_checkpoint(dir.path(), config, stored, static_cast<size_t>(random.between(1, 3)));
    index.emplace(io::open_checkpoint(dir.path()));
  }

  // A rank, roles, types and reads of its own for each scheme.
  void choose(const QuantScheme& scheme) {
    rank = random_rank();
    quantize = {scheme, {ParamRole::linear}, random.uniform() < 0.3};
    for (ParamRole role : {ParamRole::embedding, ParamRole::head, ParamRole::norm})
      if (random.uniform() < 0.5) quantize.roles.insert(role);
    choose_rules();
    if (quantize.makes_groups()) rank = {};  // its part of a row may be no whole groups
    auto slot = static_cast<uint64_t>(random.between(2, 16)) * 4096;
    staging = {slot, slot * static_cast<uint64_t>(random.between(4, 12))};
    options = {one_of({io::ReaderKind::automatic, io::ReaderKind::pread, io::ReaderKind::mmap}),
               static_cast<int>(random.between(1, 3))};
    model = model_of(rank);
    expected = expected_of(rank);
  }

  Model model_of(Rank of) const {
    Model made = build_model(dir.path(), of);
    for (const Fusion& f : fusions) fuse(f, made);
    return made;
  }
  std::vector<ExpectedParam> expected_of(Rank of) const {
    return test::expected_params(config, tensors, of, quantize, schemes);
  }

  ReadPlan plan(const Placement& placement = {}) {
    return compile(model, *index, quantize, staging, placement);
  }

  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[random.between(0, std::ssize(values) - 1)];
  }

 private:
  Json random_config() {
    Json c = test::tiny_config();
    int64_t kv_heads = one_of<int64_t>({1, 2, 4});
    c["num_key_value_heads"] = kv_heads;
    c["num_attention_heads"] = kv_heads * one_of<int64_t>({1, 2, 3});
    c["head_dim"] = 2 * random.between(2, 16);
    c["hidden_size"] = random.between(20, 200);
    c["intermediate_size"] = random.between(16, 300);
    c["vocab_size"] = random.between(192, 500);  // a panel for each of 12 ranks
    c["num_hidden_layers"] = random.between(1, 2);
    for (const char* key : {"attention_bias", "mlp_bias", "tie_word_embeddings"})
      c[key] = random.uniform() < 0.5;
    return c;
  }

  bool one_in(int n) { return random.between(1, n) == 1; }

  // Half of the layers' tensors are as Llama has them.
  void fuse_layer(int64_t layer) {
    const std::string path = "model.layers." + std::to_string(layer);
    const std::string attention = path + ".self_attn.", mlp = path + ".mlp.";
    auto add = [&](Fusion f) {
      f.transposed = one_in(2);
      fusions.push_back(std::move(f));
    };
    if (one_in(2)) {
      Fusion qkv{{attention + "q_proj", attention + "k_proj", attention + "v_proj"},
                 attention + "qkv"};
      const int64_t dim = config["head_dim"].get<int64_t>(),
                    kv_heads = config["num_key_value_heads"].get<int64_t>();
      const int64_t q = config["num_attention_heads"].get<int64_t>() / kv_heads * dim;
      if (one_in(2)) qkv.groups = {q, dim, dim};
      add(std::move(qkv));
    }
    if (one_in(2)) {
      Fusion gate_up{{mlp + "gate_proj", mlp + "up_proj"}, mlp + "gate_up"};
      const int64_t how = random.between(1, 3);
      if (how == 1) gate_up.groups = {1, 1};
      gate_up.stacked = how == 2;
      add(std::move(gate_up));
    }
    if (one_in(3)) add({{attention + "o_proj"}, attention + "c_proj"});
    if (one_in(3)) add({{mlp + "down_proj"}, mlp + "c_proj"});
  }

  // Chooses rules for some parts, or for what they are stored in.
  void choose_rules() {
    schemes.clear();
    if (!one_in(2)) return;
    for (const test::TinyTensor& t : tensors) {
      const size_t stem = t.name.rfind("_proj.weight");
      if (stem == std::string::npos || !one_in(3)) continue;
      const std::string part = t.name.substr(0, stem + 5);
      if (schemes.contains(part)) continue;
      const QuantScheme scheme =
          quant_schemes()[static_cast<size_t>(random.between(0, std::ssize(quant_schemes()) - 1))];
      auto fusion = std::ranges::find_if(
          fusions, [&](const Fusion& f) { return std::ranges::count(f.parts, part) > 0; });
      const bool fused = fusion != fusions.end();
      quantize.rules.push_back({NamePattern::parse(fused ? fusion->into : part, "rules"), scheme});
      for (const std::string& p : fused ? fusion->parts : std::vector{part}) schemes[p] = scheme;
    }
  }

  void store_in_random_types() {
    DType common = one_of({DType::bf16, DType::f16, DType::f32});
    bool mixed = random.uniform() < 0.3;
    for (test::TinyTensor& t : tensors) {
      DType dtype = mixed ? one_of({DType::bf16, DType::f16, DType::f32}) : common;
      t.dtype = dtype_name(dtype);
      t.bytes = test::random_elements(random, t.shape, dtype);
    }
    for (const Fusion& f : fusions) {  // parts of one tensor have its type
      for (const char* suffix : {".weight", ".bias"}) {
        const auto first =
            std::ranges::find(tensors, f.parts.front() + suffix, &test::TinyTensor::name);
        for (test::TinyTensor& t : tensors) {
          const bool part =
              std::ranges::any_of(f.parts, [&](const auto& p) { return t.name == p + suffix; });
          if (!part || t.dtype == first->dtype) continue;
          t.dtype = first->dtype;
          t.bytes = test::random_elements(random, t.shape, *parse_dtype(t.dtype));
        }
      }
    }
  }

  Rank random_rank() {
    auto heads = config["num_attention_heads"].get<int>();
    auto kv_heads = config["num_key_value_heads"].get<int>();
    std::vector<int> sizes;
    // Ranks share no runs of a KV head and its queries.
    const bool by_heads =
        std::ranges::any_of(fusions, [](const Fusion& f) { return f.groups.size() == 3; });
    for (int n = 1; n <= (by_heads ? kv_heads : heads); ++n)
      if (heads % n == 0 && (kv_heads % n == 0 || n % kv_heads == 0)) sizes.push_back(n);
    int size = sizes[static_cast<size_t>(random.between(0, std::ssize(sizes) - 1))];
    return {static_cast<int>(random.between(0, size - 1)), size};
  }
};

const ExpectedParam& expected_of(std::span<const ExpectedParam> all, const Param& param) {
  auto found = std::ranges::find(all, param.path, &ExpectedParam::path);
  check(found != all.end(), "a parameter that nobody expects: " + param.path);
  return *found;
}

// All that is in memory.
void expect_resident(std::span<const ExpectedParam> all, const ReadPlan& plan) {
  ASSERT_EQ(plan.params.size(), all.size());
  std::set<std::string> seen;
  for (const ParamPlan& p : plan.params) {
    const ExpectedParam& expected = expected_of(all, *p.param);
    EXPECT_TRUE(seen.insert(p.param->path).second) << p.param->path;
    ASSERT_EQ(p.param->value.is_meta(), p.streamed()) << p.param->path;
    if (p.streamed()) continue;
    EXPECT_EQ(p.param->value.rows, expected.rows) << p.param->path;
    EXPECT_TRUE(test::holds(p.param->value, 0, expected));
  }
}

void expect_resident(const Scenario& s, const ReadPlan& plan) { expect_resident(s.expected, plan); }

// The rows of the streamed parameters, as a pass meets them or the other way round.
void expect_sweep(const Scenario& s, const ReadPlan& plan, TileStream& stream, bool reverse) {
  std::vector<const Param*> params;
  for (const TiledTensor& t : plan.sweep) {
    const Param* param = plan.params[plan.tensors[t.tensor].param].param;
    if (params.empty() || params.back() != param) params.push_back(param);
  }
  if (reverse) std::ranges::reverse(params);
  for (const Param* param : params) {
    const ExpectedParam& expected = expected_of(s.expected, *param);
    EXPECT_TRUE(param->value.is_meta());
    int64_t row = 0;
    while (row < expected.rows) {
      WeightTile tile = stream.tile(*param, row, host_stream());
      ASSERT_LE(tile.first_row, row) << param->path;
      ASSERT_GT(tile.first_row + tile.weight.rows, row) << param->path;
      EXPECT_TRUE(test::holds(tile.weight, tile.first_row, expected));
      row = tile.first_row + tile.weight.rows;
    }
    EXPECT_EQ(row, expected.rows) << param->path;
  }
}

// Rows of the table of embeddings where it is streamed: the first, the last, one twice.
void expect_lookup(Scenario& s, const ReadPlan& plan, TileStream& stream) {
  for (const ParamPlan& p : plan.params) {
    if (p.param->role != ParamRole::embedding || !p.streamed()) continue;
    const ExpectedParam& expected = expected_of(s.expected, *p.param);
    const int64_t vocab = expected.parts.front().part.rows, hidden = expected.cols;
    std::vector<int32_t> ids{0, static_cast<int32_t>(vocab - 1), 0};
    for (int i = 0; i < 20; ++i)
      ids.push_back(static_cast<int32_t>(s.random.between(0, vocab - 1)));
    std::vector<float> rows(ids.size() * static_cast<size_t>(hidden), -1.0f);
    stream.embed(
        *p.param, ids,
        {reinterpret_cast<std::byte*>(rows.data()), DType::f32, std::ssize(ids), hidden, hidden},
        host_stream());
    std::vector<float> row(static_cast<size_t>(hidden));
    for (size_t i = 0; i < ids.size(); ++i) {
      decode_row(expected.parts.front().encoded(), ids[i], row.data());
      ASSERT_TRUE(std::ranges::equal(row, std::span(rows).subspan(i * row.size(), row.size())))
          << "row " << ids[i];
    }
  }
}

// Puts some of the matrices on disk: at least one that is read by passes.
Placement random_placement(Scenario& s, const ReadPlan& all) {
  Placement placement(all.params.size(), Tier::device);
  std::vector<size_t> matrices;
  for (size_t i = 0; i < all.params.size(); ++i) {
    if (all.params[i].param->pieces.front().vector || all.params[i].transposed) continue;
    if (!all.params[i].only_looked_up()) matrices.push_back(i);
    if (s.random.uniform() < 0.6) placement[i] = Tier::disk;
  }
  placement[matrices[static_cast<size_t>(s.random.between(0, std::ssize(matrices) - 1))]] =
      Tier::disk;
  return placement;
}

class Contents : public testing::Test {
 protected:
  // `body` for every scheme on every model; for how many cases, by what is particular to them.
  template <class Body>
  void for_every_case(const Body& body) {
    for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kModels; ++seed) {
      Scenario s(seed);
      uint64_t number = seed;
      for (const QuantScheme& scheme : quant_schemes()) {
        const bool grouped = scheme.grouped.scales == ScaleKind::grouped;
        if (grouped && (&scheme - quant_schemes().data() + seed) % 3 != 0) continue;
        s.choose(scheme);
        if (test::is_brief() && number++ % 6 != 0) continue;
        SCOPED_TRACE(testing::Message() << "model of seed " << seed << ", " << scheme.name
                                        << ", rank " << s.rank.rank << " of " << s.rank.size);
        count(s);
        body(s);
        if (HasFailure()) return;
      }
    }
    for (const char* what : {"tied", "untied", "ranks", "replicated KV heads", "biases", "to bf16",
                             "BF16", "F16", "F32", "mixed types", "parts together", "by heads",
                             "alternating", "stacked", "transposed", "rules", "q, k and v apart"})
      EXPECT_GT(cases_[what], at_least(3)) << what;
  }

  std::vector<Resident> load(const Scenario& s, const ReadPlan& plan, Spill* spill = nullptr) {
    LoadOptions options = s.options;
    options.spill = spill;
    report_ = {};
    LoadProgress progress;
    return Streamer(plan, *s.index, *device_, *encoder_, ledger_, measured_, options)
        .load_all(report_, progress, {});
  }

  // After a load.
  std::unique_ptr<TileStream> stream(const Scenario& s, const ReadPlan& plan,
                                     Spill* spill = nullptr) {
    LoadOptions options = s.options;
    options.spill = spill;
    return std::make_unique<TileStream>(plan, *s.index, *device_, *encoder_, ledger_, measured_,
                                        options, std::stop_token());
  }

  std::unique_ptr<Device> device_ = make_host_device();
  std::unique_ptr<Encoder> encoder_ = make_cpu_encoder(Isa::automatic);
  Ledger ledger_;
  Measured measured_;
  LoadReport report_;

 private:
  void count(const Scenario& s) {
    std::set<std::string> types;
    for (const test::TinyTensor& t : s.tensors) types.insert(t.dtype);
    ++cases_[types.size() > 1 ? "mixed types" : *types.begin()];
    ++cases_[s.config["tie_word_embeddings"].get<bool>() ? "tied" : "untied"];
    if (s.config["attention_bias"].get<bool>() && s.config["mlp_bias"].get<bool>())
      ++cases_["biases"];
    if (s.rank.size > 1) ++cases_["ranks"];
    if (s.rank.size > s.config["num_key_value_heads"].get<int>()) ++cases_["replicated KV heads"];
    if (s.quantize.to_bf16) ++cases_["to bf16"];
    if (!s.quantize.rules.empty()) ++cases_["rules"];
    if (std::ranges::any_of(s.expected, [](const ExpectedParam& p) {
          return p.path.find("qkv_proj.") != std::string::npos &&
                 !p.path.ends_with("qkv_proj.weight") && !p.path.ends_with("qkv_proj.bias");
        }))
      ++cases_["q, k and v apart"];
    std::set<std::string> layouts;
    for (const Fusion& f : s.fusions) {
      layouts.insert(f.groups.size() == 3   ? "by heads"
                     : f.groups.size() == 2 ? "alternating"
                     : f.stacked            ? "stacked"
                     : f.parts.size() > 1   ? "parts together"
                                            : "transposed");
      if (f.transposed) layouts.insert("transposed");
    }
    for (const std::string& layout : layouts) ++cases_[layout];
  }

  std::map<std::string, size_t> cases_;
};

TEST_F(Contents, ResidentParametersHoldTheCheckpointsRows) {
  for_every_case([&](Scenario& s) {
    s.quantize.matrix_layout = s.one_of({MatrixLayout::packed, MatrixLayout::by_codes});
    s.expected = test::expected_params(s.config, s.tensors, s.rank, s.quantize, s.schemes);
    ReadPlan plan = s.plan();
    auto residents = load(s, plan);
    expect_resident(s, plan);
  });
}

// Rows that one rank reads reach all that have parts of them.
TEST_F(Contents, RanksThatLoadTogetherHoldTheCheckpointsRows) {
  size_t exchanged = 0, across = 0, measured = 0;
  for_every_case([&](Scenario& s) {
    if (s.rank.size == 1) return;
    const Placement placement =
        s.random.uniform() < 0.3 ? random_placement(s, s.plan()) : Placement();
    test::LoadedRanks ranks;
    for (int r = 0; r < s.rank.size; ++r) {
      ranks.push_back(std::make_unique<test::LoadedRank>(s.model_of({r, s.rank.size})));
      ranks.back()->plan = compile(ranks.back()->model, *s.index, s.quantize, s.staging, placement);
    }
    test::load_together(ranks, *s.index, s.options);
    for (int r = 0; r < s.rank.size; ++r) {
      const test::LoadedRank& rank = *ranks[static_cast<size_t>(r)];
      expect_resident(s.expected_of({r, s.rank.size}), rank.plan);
      EXPECT_EQ(rank.report.io.bytes_requested, rank.plan.read_bytes());
      exchanged += rank.exchanged([](const TensorPlan&) { return true; });
      across += rank.exchanged([](const TensorPlan& t) { return t.transposed; });
      measured += rank.exchanged([](const TensorPlan& t) { return t.is_measured(); });
    }
  });
  for (const size_t met : {exchanged, across, measured}) EXPECT_GT(met, at_least(kModels));
}

TEST_F(Contents, SweptTilesHoldTheCheckpointsRows) {
  size_t several = 0, lookups = 0;
  for_every_case([&](Scenario& s) {
    ReadPlan plan = s.plan(random_placement(s, s.plan()));
    auto residents = load(s, plan);
    expect_resident(s, plan);
    auto tiles = stream(s, plan);
    for (bool reverse : {false, true, false}) expect_sweep(s, plan, *tiles, reverse);
    expect_lookup(s, plan, *tiles);
    several += std::ranges::any_of(plan.sweep, [](const auto& t) { return t.tiles > 1; });
    lookups += lookup_shape(plan).slot_bytes > 0;
  });
  EXPECT_GT(several, at_least(kModels));
  EXPECT_GT(lookups, at_least(kModels));
}

// The first load and the first pass fill the cache, from which later passes and a second load read.
TEST_F(Contents, SpilledPanelsHoldTheCheckpointsRows) {
  size_t reused = 0;
  for_every_case([&](Scenario& s) {
    if (s.quantize.scheme.group == ScaleGroup::none) return;
    ReadPlan plan = s.plan(random_placement(s, s.plan()));
    test::TempDir cache;
    const SpillKey key{s.dir.path(), s.quantize.name(), s.rank};
    Spill spill(plan, *s.index, key, {{cache.path()}, {}, false}, ledger_);
    if (spill.layout().tensors.empty()) return;
    {
      auto residents = load(s, plan, &spill);
      expect_resident(s, plan);
      auto first = stream(s, plan, &spill);
      expect_sweep(s, plan, *first, false);
      ASSERT_TRUE(spill.ready()) << spill.report().outcome;
      expect_sweep(s, plan, *first, true);  // the stream goes over to the cache
      expect_lookup(s, plan, *first);
    }
    Spill found(plan, *s.index, key, {{cache.path()}, {}, false}, ledger_);
    ASSERT_TRUE(found.ready()) << found.report().outcome;
    auto residents = load(s, plan, &found);
    expect_resident(s, plan);
    auto later = stream(s, plan, &found);
    for (bool reverse : {false, true}) expect_sweep(s, plan, *later, reverse);
    expect_lookup(s, plan, *later);
    // Nothing fell back to the checkpoint.
    ASSERT_TRUE(found.ready()) << found.report().outcome;
    EXPECT_EQ(found.report().outcome, "reused");
    uint64_t spilled = 0;
    for (const TiledTensor& t : plan.sweep)
      if (found.has(t.tensor)) spilled += found.layout().find(t.tensor)->bytes();
    EXPECT_GE(later->report().spilled_bytes, spilled);  // the second pass begins with what is held
    reused += spilled > 0;
  });
  EXPECT_GT(reused, at_least(3 * kModels));
}

// Matrices that the checkpoint stores input-major are written to the cache once, through little
// memory, and read from there. A damaged file is written again.
TEST_F(Contents, TransposedTensorsAreStreamedFromTheCache) {
  size_t streamed = 0;
  for_every_case([&](Scenario& s) {
    if (std::ranges::none_of(s.fusions, &Fusion::transposed)) return;
    s.quantize.matrix_layout = s.one_of({MatrixLayout::packed, MatrixLayout::by_codes});
    s.expected = test::expected_params(s.config, s.tensors, s.rank, s.quantize, s.schemes);
    ReadPlan all = lay_out(s.model, *s.index, s.quantize, Origin::spill);
    const ReadPlan plan = compile(all, s.staging, random_placement(s, all));
    test::TempDir cache;
    std::string good;
    for (int run = 0; run < 3; ++run) {
      const bool damaged = run == 2;
      if (damaged) {
        std::string bytes = good;  // of its index: needed_spill_test.cc damages the rest
        bytes[bytes.size() - static_cast<size_t>(s.random.between(1, 64))] ^= 1;
        test::write_file(list_spill_files(cache.path()).front().path, bytes);
      }
      Spill spill(plan, *s.index, {s.dir.path(), s.quantize.name(), s.rank},
                  {{cache.path()}, {}, false}, ledger_);
      ASSERT_TRUE(spill.is_needed());
      EXPECT_EQ(spill.ready(), run == 1);
      const uint64_t least = least_to_write(plan, spill.layout());
      const Buffer memory(ledger_, Use::staging, "spill", least, Buffer::Touch::lazily);
      LoadOptions with_spill = s.options;
      with_spill.spill = &spill;
      write_spill({plan, *s.index, with_spill, memory.bytes().first(least), {}});
      ASSERT_TRUE(spill.ready()) << spill.report().outcome;
      const std::string file = test::read_file(list_spill_files(cache.path()).front().path);
      if (run == 0) good = file;
      EXPECT_TRUE(file == good) << "the same bytes, or mended";
      LoadProgress progress;
      report_ = {};
      auto residents = Streamer(plan, *s.index, *device_, *encoder_, ledger_, measured_, with_spill)
                           .load_all(report_, progress, {});
      expect_resident(s, plan);
      TileStream tiles(plan, *s.index, *device_, *encoder_, ledger_, measured_, with_spill,
                       std::stop_token());
      for (bool reverse : {false, true}) expect_sweep(s, plan, tiles, reverse);
    }
    for (const TiledTensor& t : plan.sweep)
      streamed += plan.tensors[t.tensor].origin == Origin::spill;
    EXPECT_EQ(list_spill_files(cache.path()).size(), 1u);
  });
  EXPECT_GT(streamed, at_least(3 * kModels));
}

}  // namespace
}  // namespace sluice
