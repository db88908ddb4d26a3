// Disks under the spill cache: that fail, fill up, or lose a file.
#include <unistd.h>

#include <cerrno>

#include "io/system_calls.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/device/host_device.h"
#include "tests/engine/spill_model.h"

namespace sluice {
namespace {

class SpillDisk : public SpillTest {};

// A load with a spill, and the sweeps after it, without a forward pass.
class SpilledLoad {
 public:
  SpilledLoad(const Planner& planner, const ReadPlan& plan, Spill& spill)
      : plan_(plan),
        index_(planner.checkpoint().index()),
        options_{io::ReaderKind::automatic, 2, &spill} {
    LoadReport report;
    LoadProgress progress;
    residents_ = Streamer(plan_, index_, *device_, *encoder_, ledger_, measured_, options_)
                     .load_all(report, progress, {});
  }
  TileStream stream() {
    return TileStream(plan_, index_, *device_, *encoder_, ledger_, measured_, options_, {});
  }

 private:
  const ReadPlan& plan_;
  const io::CheckpointIndex& index_;
  LoadOptions options_;
  std::unique_ptr<Device> device_ = make_host_device();
  std::unique_ptr<Encoder> encoder_ = make_cpu_encoder(Isa::automatic);
  Ledger ledger_;
  Measured measured_;
  std::vector<Resident> residents_;
};

// A copy that ends while it is read: the other one has the rest.
TEST_F(SpillDisk, ACopyThatFailsIsLeftOut) {
  test::TempDir other;
  ModelOptions o = options();
  o.spill.directories = {cache(), other.path() / "spill"};
  std::string expected = outcome(o).bits;
  Planner probe(options());
  o.memory = std::to_string(probe.smallest(shape(probe)).needed() + 2 * MiB);
  test::Ready ready(o, shape);
  LoadedModel& s = ready.model;
  fs::resize_file(only_file(), 20000);  // after it was opened
  EXPECT_EQ(generate(s.runner()), expected);
  EXPECT_TRUE(s.spill()->ready());
  EXPECT_EQ(s.spill()->files().size(), 1u);
}

TEST_F(SpillDisk, AFileThatIsLostBeforeItIsOpenedCostsSpeedOnly) {
  std::string expected = resident(options()).bits;
  Planner planner(options());
  const ReadPlan plan = streaming_plan(planner);
  const SpillKey key = this->key();
  auto lose = [&](int how) {
    if (how == 0) fs::remove(only_file());
    if (how == 1) fs::resize_file(only_file(), 20000);
    if (how == 2) fs::resize_file(only_file(), 0);
  };
  for (int how = 0; how < 3; ++how) {
    for (bool after_load : {false, true}) {
      outcome(options());
      Ledger ledger;
      Spill spill(plan, planner.checkpoint().index(), key, planner.options().spill, ledger);
      ASSERT_TRUE(spill.ready());
      if (!after_load) lose(how);
      SpilledLoad load(planner, plan, spill);
      if (after_load) lose(how);
      TileStream stream = load.stream();
      one_pass(plan, stream);
      EXPECT_FALSE(spill.ready());
      EXPECT_EQ(outcome(options()).bits, expected);
    }
  }
}

StreamReport two_passes(Planner& planner, const ReadPlan& plan, Spill& spill) {
  SpilledLoad load(planner, plan, spill);
  TileStream stream = load.stream();
  one_pass(plan, stream);
  one_pass(plan, stream);
  return stream.report();
}

// All that a plan gives: what a load leaves in memory, rows of the table, the tiles of two passes.
std::string contents(const ReadPlan& plan, TileStream& stream) {
  std::string bytes;
  auto add = [&](const Weight& w, int64_t row, int64_t rows) {
    for (Plane plane : kPlanes) {
      if (w.plane(plane) == nullptr) continue;
      const std::byte* at = w.plane(plane) + plane_offset(w.format, plane, row, w.cols);
      bytes.append(reinterpret_cast<const char*>(at), plane_bytes(w.format, plane, rows, w.cols));
    }
  };
  for (const ParamPlan& p : plan.params)
    if (!p.streamed()) add(p.param->value, 0, p.param->rows);
  for (const ParamPlan& p : plan.params) {
    if (p.param->role != ParamRole::embedding || !p.streamed()) continue;
    const std::vector<int32_t> ids{7, 4000, 7, 0};
    std::vector<float> rows(ids.size() * static_cast<size_t>(p.param->cols));
    stream.embed(*p.param, ids,
                 {reinterpret_cast<std::byte*>(rows.data()), DType::f32, std::ssize(ids),
                  p.param->cols, p.param->cols},
                 host_stream());
    bytes.append(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(float));
  }
  for (int pass = 0; pass < 2; ++pass) {
    for (const TiledTensor& t : plan.sweep) {
      const TensorPlan& tensor = plan.tensors[t.tensor];
      const Param& param = *plan.params[tensor.param].param;
      const int64_t end =
          plan.tile_row(plan.tile(t.first_tile)) + param.pieces[tensor.piece].cut.rows;
      for (int64_t row = plan.tile_row(plan.tile(t.first_tile)); row < end;) {
        WeightTile tile = stream.tile(param, row, host_stream());
        for (int64_t r = 0; r < tile.weight.rows; r += kPanelRows)  // reads may differ
          add(tile.weight, r, kPanelRows);
        row = tile.first_row + tile.weight.rows;
      }
    }
  }
  return bytes;
}

enum class Role { none, load, sweep, lookup };
// The place of codes in the file that only this role reads.
std::optional<uint64_t> offset_of(Role role, const ReadPlan& plan, const SpillLayout& layout) {
  std::optional<uint64_t> at;
  for (const Fetch& f : load_order(plan, &layout, false))
    if (role == Role::load && f.form == Fetch::Form::packed) at = f.offset;
  for (uint32_t t = 0; t < plan.sweep_tiles(); ++t) {
    const Fetch f = tile_fetch(plan, &layout, t, 0).fetch;
    const ParamPlan& p = plan.params[plan.tensors[f.move.tensor].param];
    if (role == Role::sweep && f.form == Fetch::Form::packed && p.table == Table::none)
      at = f.offset;
    if (role == Role::lookup && p.table == Table::tied)
      at = row_fetch(plan, &layout, f.move.tensor, 4000).offset;
  }
  return at;
}

// Codes that changed on the disk, met by a load, a sweep and a look-up: the checkpoint's are used.
TEST_F(SpillDisk, DamageInEachRoleCostsSpeedOnly) {
  Planner planner(options());
  const QuantizeRequest& quantize = planner.options().quantize;
  const ReadPlan all =
      lay_out(planner.checkpoint().model(), planner.checkpoint().index(), quantize);
  const ReadPlan plan =
      compile(planner.checkpoint().model(), planner.checkpoint().index(), quantize,
              {256 * KiB, MiB}, choose_placement(all, {all.storage_bytes() / 3}));
  std::string expected;
  for (Role role : {Role::none, Role::load, Role::sweep, Role::lookup}) {
    SCOPED_TRACE(static_cast<int>(role));
    clear_spill_files(cache());
    Ledger ledger;
    {
      Spill fresh(plan, planner.checkpoint().index(), key(), planner.options().spill, ledger);
      two_passes(planner, plan, fresh);
      ASSERT_TRUE(fresh.ready()) << fresh.report().outcome;
    }
    Spill spill(plan, planner.checkpoint().index(), key(), planner.options().spill, ledger);
    ASSERT_TRUE(spill.ready());
    const fs::path file = only_file();
    const std::optional<uint64_t> at = offset_of(role, plan, spill.layout());
    ASSERT_EQ(at.has_value(), role != Role::none);
    auto damage = [&](Role when) {
      if (when != role) return;
      const auto time = fs::last_write_time(file);
      flip(file, *at);
      fs::last_write_time(file, time);  // as a disk does it
    };
    damage(Role::load);
    SpilledLoad load(planner, plan, spill);
    EXPECT_EQ(spill.ready(), role != Role::load);
    damage(Role::sweep);
    damage(Role::lookup);
    TileStream stream = load.stream();
    const std::string got = contents(plan, stream);
    if (role == Role::none) expected = got;
    EXPECT_TRUE(got == expected);
    EXPECT_EQ(spill.ready(), role == Role::none);
    if (role == Role::none) continue;
    EXPECT_NE(spill.report().outcome.find("is damaged"), std::string::npos);
    EXPECT_FALSE(fs::exists(file)) << "no other process uses it";
  }
}

// A disk that fills up, or fails, at a given write.
class FullDisk final : public io::SystemCalls {
 public:
  FullDisk(int writes, int allocate_error, int sync_error, int rename_error)
      : writes_left_(writes),
        allocate_error_(allocate_error),
        sync_error_(sync_error),
        rename_error_(rename_error) {}
  int64_t pwrite(int fd, const std::byte* from, size_t length, uint64_t offset) const override {
    if (writes_left_-- <= 0) return -ENOSPC;
    return SystemCalls::pwrite(fd, from, length == 1 ? 1 : length / 2, offset);  // short writes
  }
  int allocate(int fd, uint64_t bytes) const override {
    return allocate_error_ != 0 ? -allocate_error_ : SystemCalls::allocate(fd, bytes);
  }
  int sync(int fd) const override {
    return sync_error_ != 0 ? -sync_error_ : SystemCalls::sync(fd);
  }
  int rename(const char* from, const char* to) const override {
    return rename_error_ != 0 ? -rename_error_ : SystemCalls::rename(from, to);
  }

 private:
  mutable std::atomic<int> writes_left_;
  int allocate_error_;
  int sync_error_;
  int rename_error_;
};

TEST_F(SpillDisk, ADiskThatFailsLeavesNothingBehind) {
  Planner planner(options());
  const ReadPlan plan = streaming_plan(planner);
  const SpillKey key = this->key();
  SpillOptions spill_options{{cache()}, {}, false};
  struct DiskCase {
    FullDisk disk;
    bool works = false;
  };
  std::vector<std::unique_ptr<DiskCase>> cases;
  auto add = [&](int writes, int allocate, int sync, int rename, bool works = false) {
    cases.push_back(
        std::unique_ptr<DiskCase>(new DiskCase{{writes, allocate, sync, rename}, works}));
  };
  add(0, 0, 0, 0);
  add(3, 0, 0, 0);
  add(100, 0, 0, 0);
  add(1 << 20, ENOSPC, 0, 0);
  add(1 << 20, 0, EIO, 0);
  add(1 << 20, 0, 0, EACCES);
  add(1 << 20, 0, 0, 0, true);
  for (const auto& c : cases) {
    Ledger ledger;
    Spill spill(plan, planner.checkpoint().index(), key, spill_options, ledger, c->disk);
    EXPECT_EQ(two_passes(planner, plan, spill).spilled_bytes > 0, c->works);
    EXPECT_EQ(spill.ready(), c->works);
    EXPECT_EQ(list_spill_files(cache()).size(), c->works ? 1u : 0u);
  }
}

// Another process cuts short what is being written.
class CuttingCalls final : public io::SystemCalls {
 public:
  int sync(int fd) const override { return ftruncate(fd, 20000) == 0 ? 0 : -errno; }
};

TEST_F(SpillDisk, AFileThatIsCutShortWhileItIsWrittenIsNotRead) {
  Planner planner(options());
  const ReadPlan plan = streaming_plan(planner);
  const SpillKey key = this->key();
  CuttingCalls calls;
  Ledger ledger;
  Spill spill(plan, planner.checkpoint().index(), key, planner.options().spill, ledger, calls);
  EXPECT_EQ(two_passes(planner, plan, spill).spilled_bytes, 0u);
  EXPECT_FALSE(spill.ready());
  EXPECT_TRUE(list_spill_files(cache()).empty());
}

// A disk that has nothing but the spill files.
class SmallDisk final : public io::SystemCalls {
 public:
  SmallDisk(fs::path directory, uint64_t bytes) : directory_(std::move(directory)), bytes_(bytes) {}
  uint64_t free_bytes(const char*) const override {
    uint64_t free = bytes_;
    for (const SpillFileInfo& f : list_spill_files(directory_)) free -= std::min(free, f.bytes);
    return free;
  }

 private:
  fs::path directory_;
  uint64_t bytes_;
};

TEST_F(SpillDisk, AFileThatFillsItsDiskIsReused) {
  Planner planner(options());
  const ReadPlan plan = streaming_plan(planner);
  const SpillKey key = this->key();
  SmallDisk disk(cache(), spill_layout(plan).file_bytes() * 3 / 4);
  SpillOptions unlimited{{cache()}, "1GiB", false};
  for (const char* outcome : {"written", "reused", "reused"}) {
    Ledger ledger;
    Spill spill(plan, planner.checkpoint().index(), key, unlimited, ledger, disk);
    two_passes(planner, plan, spill);
    EXPECT_EQ(spill.report().outcome, outcome);
    EXPECT_GT(spill.report().bytes, spill_layout(plan).file_bytes() / 2);
  }
}

TEST_F(SpillDisk, ThePlanKnowsItsLimit) {
  ModelOptions o = options();
  Planner unlimited(o);
  MemoryPlan all = unlimited.smallest(shape(unlimited));
  o.spill.limit = std::to_string(100 * KiB);
  Planner limited(o);
  MemoryPlan some = limited.smallest(shape(limited));
  EXPECT_EQ(some.spill, all.spill);
  EXPECT_GT(some.sweep_bytes, all.sweep_bytes);
}

TEST_F(SpillDisk, AnotherBudgetsChoiceIsUsedWhereItHelps) {
  Planner planner(options());
  QuantizeRequest quantize = planner.options().quantize;
  auto streaming = [&](const Placement& placement) {
    return compile(planner.checkpoint().model(), planner.checkpoint().index(), quantize,
                   {256 * KiB, MiB}, placement);
  };
  Placement most = choose_placement(
      lay_out(planner.checkpoint().model(), planner.checkpoint().index(), quantize), {0});
  SpillKey key{fs::canonical(model()), "fp8_per_channel", {}};
  ReadPlan plan = streaming(most);
  SpillOptions half{{cache()}, std::to_string(spill_layout(plan).file_bytes() / 2), false};
  Ledger ledger;
  std::vector<bool> held(most.size());
  {
    Spill spill(plan, planner.checkpoint().index(), key, half, ledger);
    two_passes(planner, plan, spill);
    ASSERT_EQ(spill.report().outcome, "written");
    for (uint32_t t = 0; t < plan.tensors.size(); ++t)
      if (spill.has(t)) held[plan.tensors[t].param] = true;
  }
  Placement fewer = most, others = most;
  size_t smallest = 0;
  for (size_t p = 0; p < held.size(); ++p)
    if (held[p] && (!held[smallest] || plan.params[p].bytes < plan.params[smallest].bytes))
      smallest = p;
  fewer[smallest] = Tier::device;
  for (size_t p = 0; p < others.size(); ++p)
    if (held[p]) others[p] = Tier::device;
  {
    ReadPlan now = streaming(fewer);
    Spill spill(now, planner.checkpoint().index(), key, half, ledger);
    EXPECT_EQ(spill.report().outcome, "reused");
    for (uint32_t t = 0; t < now.tensors.size(); ++t)
      EXPECT_EQ(spill.has(t), held[now.tensors[t].param]);
    EXPECT_GT(two_passes(planner, now, spill).spilled_bytes, 0u);
  }
  ReadPlan now = streaming(others);
  Spill spill(now, planner.checkpoint().index(), key, half, ledger);
  EXPECT_EQ(spill.state(), Spill::State::filling);
  two_passes(planner, now, spill);
  EXPECT_EQ(spill.report().outcome, "written");
}

}  // namespace
}  // namespace sluice
