// Weights in device memory, in host memory and on disk, on an emulated device: the same bits
// wherever they lie, within both budgets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "src/base/error.h"
#include "src/base/units.h"
#include "tests/engine/golden.h"
#include "tests/engine/placed.h"
#include "tests/support/checkpoint.h"
#include "tests/support/sanitized.h"
#include "tests/support/simt/emulated_backend.h"

namespace sluice {
namespace {

using simt::Schedule;

constexpr Schedule kSchedules[] = {Schedule::lazy, Schedule::eager, Schedule::shuffled};

class HostTier : public testing::Test {
 protected:
  void write(int64_t hidden, int64_t vocab, bool tied, int64_t layers = 2) {
    Json config = test::tiny_config();
    config["hidden_size"] = hidden;
    config["intermediate_size"] = 2 * hidden;
    config["vocab_size"] = vocab;
    config["tie_word_embeddings"] = tied;
    config["num_hidden_layers"] = layers;
    test::Random random("tiers");
    test::write_checkpoint(dir_.path(), config, test::tiny_tensors(config, random));
  }
  ModelOptions options(const char* scheme = "none", const std::string& place = "",
                       Schedule schedule = Schedule::shuffled) const {
    ModelOptions o;
    o.model = dir_.path();
    o.threads = 2;
    o.cpu_rows = 0;  // all crosses the link
    o.quantize.scheme = *find_quant_scheme(scheme);
    if (!place.empty()) o.place = parse_place_rules(place);
    o.backend = simt::make_emulated_backend({.schedule = schedule, .seed = 5});
    return o;
  }
  static RunShape shape(const Planner& planner) { return planner.run_shape(12, 6, 6); }

  // The logits of a prompt in two parts and of two tokens after it: passes.
  static std::vector<std::vector<float>> logits(LoadedModel& loaded) {
    Machine& machine = loaded.planner().machine();
    auto all = test::run_prompt(loaded, {5, 17, 30, 2, 4, 9}, 0, 3).logits;
    auto& device = dynamic_cast<simt::EmulatedDevice&>(machine.backend().device());
    EXPECT_EQ(device.peak_bytes(), loaded.memory_plan().device.peak());
    EXPECT_EQ(machine.ledger().peak(Place::device), loaded.memory_plan().device.peak());
    EXPECT_LE(machine.ledger().peak(Place::host), loaded.memory_plan().peak());
    return all;
  }
  std::vector<std::vector<float>> logits(const ModelOptions& o) const {
    test::Ready ready(o, shape);
    return logits(ready.model);
  }

  test::TempDir dir_;
};

TEST_F(HostTier, TheSameBitsAsResidentAndNothingIsReadAgain) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  for (bool tied : {false, true}) {
    write(64, 70, tied);
    for (const char* scheme :
         {"none", "fp8_per_block", "fp8_dynamic", "fp8_dynamic_per_block", "int8"}) {
      const auto resident = logits(options(scheme));
      // The order of work does not depend on what is worked with.
      const bool every_order = !tied && std::string(scheme) == "fp8_per_block";
      for (Schedule schedule : kSchedules) {
        if (!every_order && schedule != Schedule::shuffled) continue;
        SCOPED_TRACE(testing::Message() << scheme << ", " << static_cast<int>(schedule));
        test::Ready ready(options(scheme, "*=host", schedule), shape);
        LoadedModel& loaded = ready.model;
        const MemoryPlan& plan = loaded.memory_plan();
        EXPECT_FALSE(plan.has(Tier::disk));
        EXPECT_EQ(logits(loaded), resident);
        StreamReport report = loaded.stream_report().value();
        EXPECT_EQ(report.io.bytes_read, 0u);
        EXPECT_GE(report.host_bytes, 2 * plan.host_sweep_bytes);
        loaded.release();
        for (const ParamPlan& p : loaded.read_plan().params)
          EXPECT_TRUE(p.param->value.is_meta() && p.param->stream == nullptr) << p.param->path;
        EXPECT_EQ(ready.planner.machine().ledger().used(Place::device), 0u);
      }
    }
  }
}

TEST_F(HostTier, AllTiersTogether) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  write(48, 70, false);
  for (const char* scheme : {"none", "fp8_per_channel"}) {
    const auto resident = logits(options(scheme));
    for (const char* place : {"layers.1=host,layers.0=device,*=disk", "mlp=disk,*=host"}) {
      const bool every_order = std::string(scheme) == "none";
      for (Schedule schedule : kSchedules) {
        if (!every_order && schedule != Schedule::shuffled) continue;
        SCOPED_TRACE(testing::Message() << scheme << ", " << place);
        test::Ready ready(options(scheme, place, schedule), shape);
        LoadedModel& loaded = ready.model;
        EXPECT_TRUE(loaded.memory_plan().has(Tier::disk) && loaded.memory_plan().has(Tier::host));
        EXPECT_EQ(logits(loaded), resident);
        StreamReport report = loaded.stream_report().value();
        EXPECT_GT(report.io.bytes_read, 0u);
        EXPECT_GT(report.host_bytes, 0u);
      }
    }
  }
}

// Weights that do not fit the device go to host memory as far as that has room, the rest to disk.
TEST_F(HostTier, BudgetsAreObeyed) {
  if (test::is_brief()) GTEST_SKIP() << test::kEmulatedTooSlow;
  write(192, 900, false, 4);
  const auto resident = logits(options());
  Planner probe(options());
  MemoryPlan least = probe.smallest(shape(probe)), most = probe.predict(shape(probe));
  ASSERT_FALSE(most.streams());
  uint64_t weights = most.device.weights, host = least.needed() - least.runtime;
  int with_all = 0;
  for (uint64_t device : {weights / 4, 3 * weights / 8}) {
    uint64_t last = UINT64_MAX, last_room = 0;
    for (uint64_t more : {uint64_t{0}, 2 * weights / 3, 2 * weights}) {
      ModelOptions o = options();
      o.device_memory = std::to_string(least.device.peak() + device);
      test::PlacedModel placed = test::placed(o, host + more, shape);
      const MemoryPlan& plan = placed.plan();
      const Machine& machine = placed.planner->machine();
      SCOPED_TRACE(format_size(device) + ", " + format_size(more));
      EXPECT_LE(plan.needed(), machine.budget());
      EXPECT_LE(plan.device.peak(), machine.device_budget());
      uint64_t room = machine.budget() - plan.runtime;
      if (room >= last_room) {
        EXPECT_LE(plan.sweep_bytes, last);
      }
      last = plan.sweep_bytes;
      last_room = room;
      bool mixed = plan.has(Tier::host) && plan.has(Tier::disk);
      if (mixed && plan.device.weights > weights / 8 && ++with_all == 1) {
        test::Ready ready(std::move(placed));
        EXPECT_EQ(logits(ready.model), resident);
      }
    }
    EXPECT_EQ(last, 0u);  // there is room for all
  }
  EXPECT_GT(with_all, 0);
}

// Matrices of several tiles. The device works on a tile late, and has to find it as it was given.
TEST_F(HostTier, ATileStaysUntilTheNextIsAskedFor) {
  write(256, 9000, true);
  for (Schedule schedule : kSchedules) {
    test::Ready ready(options("fp8_per_channel", "*=host", schedule), shape);
    LoadedModel& loaded = ready.model;
    Device& device = ready.planner.machine().backend().device();
    const ParamPlan& head = loaded.read_plan().params.front();
    ASSERT_EQ(head.param->role, ParamRole::embedding);
    std::map<const ParamPlan*, int64_t> tile_rows;
    for (const TiledParam& t : loaded.read_plan().host_sweep)
      tile_rows[&loaded.read_plan().params[t.param]] = t.tile_rows;
    ASSERT_GT(head.param->rows, 2 * tile_rows.at(&head));
    std::vector<const ParamPlan*> order;
    for (const ParamPlan& p : loaded.read_plan().params)
      if (p.tier == Tier::host) order.push_back(&p);
    std::rotate(order.begin(), order.begin() + 1, order.end());  // as a sweep has them
    order.push_back(order[3]);                                   // and as none has
    order.push_back(&head);
    order.push_back(order.front());

    std::unique_ptr<DeviceStream> compute = device.stream();
    Ledger ledger;
    uint64_t bytes = 0;
    for (const ParamPlan* p : order) bytes += p->bytes;
    Buffer found(ledger, Use::workspace, "found", bytes, Buffer::Touch::now);
    std::unique_ptr<Pinned> pinned = device.pin(found.bytes());
    uint64_t at = 0;
    auto take = [&](const void* data, uint64_t size) {
      compute->copy(found.data() + at, static_cast<const std::byte*>(data), size);
      at += size;
    };
    for (const ParamPlan* p : order) {
      for (int64_t row = 0; row < p->param->rows;) {
        WeightTile tile = p->param->stream->tile(*p->param, row, *compute);
        EXPECT_EQ(tile.first_row, row);
        row += tile.weight.rows;
        take(tile.weight.data,
             plane_bytes(p->format, Plane::codes, tile.weight.rows, p->param->cols));
        if (tile.weight.scales != nullptr)
          take(tile.weight.scales,
               plane_bytes(p->format, Plane::scales, tile.weight.rows, p->param->cols));
      }
    }
    compute->synchronize();
    at = 0;
    for (const ParamPlan* p : order) {
      const Weight& w = p->param->value;
      for (int64_t row = 0; row < w.rows; row += tile_rows.at(p)) {
        int64_t rows = std::min(tile_rows.at(p), w.rows - row);
        auto expect = [&](const void* data, uint64_t size) {
          EXPECT_EQ(std::memcmp(found.data() + at, data, size), 0) << p->param->path;
          at += size;
        };
        expect(w.data + element_offset(w, row, 0),
               plane_bytes(p->format, Plane::codes, rows, w.cols));
        if (w.scales != nullptr)
          expect(w.scales + row, plane_bytes(p->format, Plane::scales, rows, w.cols));
      }
    }
  }
}

TEST_F(HostTier, ADeviceIsNoPlaceWithoutOne) {
  write(64, 70, false);
  ModelOptions o = options("none", "layers.0=device");
  EXPECT_NO_THROW(Planner{o});
  o.backend = nullptr;
  EXPECT_THROW(Planner{o}, Error);
}

}  // namespace
}  // namespace sluice
