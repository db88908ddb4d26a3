// A model that is quantized and streamed, and its spill cache.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "src/engine/loaded_model.h"
#include "src/load/spill_directory.h"
#include "tests/engine/placed.h"
#include "tests/support/checkpoint.h"

namespace sluice {

namespace fs = std::filesystem;

inline constexpr int64_t kPrompt = 20;
inline constexpr int64_t kSteps = 3;

// A pass over the streamed weights, without a forward pass.
inline void one_pass(const ReadPlan& plan, TileStream& stream) {
  for (uint32_t i = 0; i < plan.sweep_tiles(); ++i) {
    Tile tile = plan.tile(i);
    const TensorPlan& t = plan.tensors[tile.move.tensor];
    stream.tile(*plan.params[t.param].param, plan.tile_row(tile), host_stream());
  }
}

class SpillTest : public testing::Test {
 protected:
  SpillTest() {
    test::Random random("a spilled model");
    config_ = test::tiny_config();
    config_["hidden_size"] = 256;
    config_["intermediate_size"] = 1000;  // codes that O_DIRECT cannot write as they lie
    config_["num_hidden_layers"] = 6;
    config_["vocab_size"] = 5000;
    config_["tie_word_embeddings"] = true;
    write_model(random);
  }
  void write_model(test::Random& random) {
    test::write_checkpoint(model(), config_, test::tiny_tensors(config_, random), 2);
  }
  // For tests of many runs that ask for no more.
  void use_three_layers() {
    test::Random random("a spilled model");
    config_["num_hidden_layers"] = 3;
    write_model(random);
  }
  fs::path model() const { return dir_.path(); }
  fs::path cache() const { return cache_.path() / "spill"; }

  ModelOptions options(std::string_view scheme = "fp8_per_channel") const {
    ModelOptions o;
    o.model = model();
    o.quantize.scheme = *find_quant_scheme(scheme);
    o.quantize.roles = {ParamRole::linear, ParamRole::embedding, ParamRole::head};
    o.threads = 2;
    o.spill.directories = {cache()};
    return o;
  }

  struct Outcome {
    std::string bits;
    Spill::Report spill;
    uint64_t load_read = 0;
    StreamReport stream;
  };
  // Runs in the least memory that works, or with `share` of what would make all resident.
  Outcome outcome(const ModelOptions& options, double share = 0) {
    const uint64_t room =
        share > 0 ? test::needs(options, shape).at(share) : test::least_room(options, shape);
    Outcome out = run(test::placed(options, room, shape));
    EXPECT_GT(out.stream.tiles_used, 0u);
    return out;
  }
  // Runs with all weights resident.
  Outcome resident(const ModelOptions& options) {
    auto planner = std::make_unique<Planner>(options);
    std::shared_ptr<const Placed> placed = planner->place(shape(*planner));
    return run({std::move(planner), std::move(placed)});
  }
  // Makes a plan of small tiles, with nothing in memory that could go.
  static ReadPlan streaming_plan(Planner& planner) {
    const QuantizeRequest& quantize = planner.options().quantize;
    Checkpoint& from = planner.checkpoint();
    return compile(from.model(), from.index(), quantize, {256 * KiB, MiB},
                   choose_placement(lay_out(from.model(), from.index(), quantize), {0}));
  }
  SpillKey key() const { return {fs::canonical(model()), "fp8_per_channel", {}}; }
  static RunShape shape(const Planner& p) { return p.run_shape(kPrompt + kSteps, kPrompt, 1); }

  Outcome run(test::PlacedModel placed) {
    test::Ready ready(std::move(placed));
    LoadedModel& model = ready.model;
    Outcome out;
    out.bits = generate(model.runner());
    EXPECT_LE(ready.planner.machine().ledger().peak(Place::host), model.memory_plan().peak());
    if (model.spill() != nullptr) out.spill = model.spill()->report();
    if (model.stream_report()) out.stream = *model.stream_report();
    out.load_read = model.report().io.bytes_requested;
    return out;
  }

  // The logits of the prompt's last token and of some steps.
  static std::string generate(Runner& runner) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < kPrompt; ++i) ids.push_back((i * 131 + 7) % 5000);
    return test::logits_bytes(runner, ids, std::vector<int32_t>(kSteps, ids.front()));
  }

  fs::path only_file() const {
    std::vector<SpillFileInfo> files = list_spill_files(cache());
    EXPECT_EQ(files.size(), 1u);
    return files.empty() ? fs::path() : files.front().path;
  }
  static void flip(const fs::path& file, uint64_t at) {
    std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
    f.seekg(static_cast<std::streamoff>(at));
    auto byte = static_cast<char>(f.get() ^ 0x10);
    f.seekp(static_cast<std::streamoff>(at));
    f.put(byte);
  }

  Json config_;
  test::TempDir dir_;
  test::TempDir cache_;
};

}  // namespace sluice
