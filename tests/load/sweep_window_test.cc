// The window of a sweep, driven with a reader and workers that take their time and compute that
// wants tiles in order or not, and compared with a simple model of it.
#include "src/load/sweep_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "tests/support/random.h"

namespace sluice {
namespace {

class Simulation {
 public:
  Simulation(test::Random& random, uint32_t tiles, uint32_t slots, uint32_t buffers)
      : random_(random), window_(tiles), tiles_(tiles), slots_(slots), buffers_(buffers) {
    for (uint32_t t = 0; t < tiles; ++t) packed_.push_back(random.uniform() < 0.5);
    restart();
  }

  // Compute wants a tile: does what there is to do, in any order, until it has it.
  void want(uint32_t tile) {
    if (held_ && !has(*held_, tile)) let_go();
    if (held_) return;
    window_.seek(tile);
    auto found =
        std::ranges::find_if(wanted_, [&](const Read& r) { return !r.skipped && has(r, tile); });
    if (found == wanted_.end()) next_ = tile;
    wanted_.erase(wanted_.begin(), found);
    for (int step = 0; !is_ready(); ++step) {
      ASSERT_LT(step, 10000) << "tile " << tile << " never comes";
      pump();
      ASSERT_TRUE(is_ready() || !in_flight_.empty() || !encoding_.empty())
          << "nothing is under way to tile " << tile;
      if (random_.uniform() < 0.5) arrive();
      if (random_.uniform() < 0.5) encode();
    }
    ASSERT_EQ(window_.wanted()->fetch.tag, wanted_.front().tag);
    held_ = wanted_.front();
    following_ = (held_->first + held_->tiles) % tiles_;
    wanted_.erase(wanted_.begin());
    const SweepWindow::Entry& e = window_.hold();
    ASSERT_TRUE(e.has(tile));
    EXPECT_EQ(e.read.tag, e.fetch.tag);
    if (e.has_place()) {
      EXPECT_TRUE(placed_.contains(e.fetch.tag));
      EXPECT_EQ(e.stats.elements, static_cast<int64_t>(e.fetch.tag));
    } else if (e.is_packed()) {
      EXPECT_EQ(slot_of_.at(e.fetch.tag), e.read.slot) << "its slot has found another use";
    } else {
      EXPECT_EQ(buffer_of_.at(e.fetch.tag), e.buffer) << "its buffer has found another use";
      EXPECT_EQ(e.stats.elements, static_cast<int64_t>(e.fetch.tag));
    }
    pump();
  }

  // Another reader, with another use of the memory.
  void restart() {
    if (held_) let_go();
    auto first = std::ranges::find(wanted_, false, &Read::skipped);
    if (first != wanted_.end()) next_ = first->first;
    if (random_.uniform() < 0.5) buffers_ = static_cast<uint32_t>(random_.between(1, 4));
    window_.restart(buffers_);
    wanted_.clear();
    in_flight_.clear();
    encoding_.clear();
    slot_of_.clear();
    buffer_of_.clear();
    free_slots_.clear();
    for (uint32_t s = 0; s < slots_; ++s) free_slots_.insert(s);
  }

  // Places are about to be others'.
  void leave_places() {
    const bool are_written = std::ranges::any_of(encoding_, [&](uint64_t tag) {
      return placed_.contains(tag) && !(held_ && held_->tag == tag);
    });
    EXPECT_EQ(window_.leave_places(), are_written);
    std::erase_if(wanted_, [&](const Read& r) { return !r.skipped && placed_.contains(r.tag); });
  }

  // All memory comes back once nothing is wanted.
  void finish() {
    if (held_) let_go();
    while (!in_flight_.empty()) arrive();
    while (!encoding_.empty()) encode();
    pump();
    while (!in_flight_.empty() || !encoding_.empty()) {
      arrive();
      encode();
      pump();
    }
    size_t kept = 0;
    for (const Read& r : wanted_) kept += !r.skipped && slot_of_.contains(r.tag);
    EXPECT_EQ(free_slots_.size() + kept, slots_);
  }

  uint32_t tiles() const { return tiles_; }
  uint32_t following() const { return following_; }  // what was held last

 private:
  struct Read {
    uint64_t tag = 0;
    uint32_t first = 0, tiles = 1;
    bool skipped = false;
  };
  static bool has(const Read& r, uint32_t tile) {
    return r.first <= tile && tile < r.first + r.tiles;
  }
  bool is_ready() const {
    return window_.wanted() != nullptr && window_.wanted()->state == SweepWindow::State::ready;
  }
  bool is_of_use(uint64_t tag) const {
    auto is_it = [&](const Read& r) { return !r.skipped && r.tag == tag; };
    return (held_ && held_->tag == tag) || std::ranges::any_of(wanted_, is_it);
  }

  void let_go() {
    window_.let_go();
    held_.reset();
  }

  void pump() {
    take_freed();
    while (SweepWindow::Entry* e = window_.next_to_encode()) {
      if (placed_.contains(e->fetch.tag)) {
        EXPECT_FALSE(e->buffer);
        encoding_.insert(e->fetch.tag);
        continue;
      }
      ASSERT_TRUE(e->buffer && *e->buffer < buffers_);
      for (auto [tag, buffer] : buffer_of_) {
        if (buffer == *e->buffer) {
          EXPECT_FALSE(is_of_use(tag) || encoding_.contains(tag)) << "a buffer of two reads";
        }
      }
      std::erase_if(buffer_of_, [&](const auto& b) { return b.second == *e->buffer; });
      buffer_of_[e->fetch.tag] = *e->buffer;
      encoding_.insert(e->fetch.tag);
    }
    uint32_t there = held_ ? held_->tiles : 0;
    for (const Read& r : wanted_) there += r.tiles;
    while (!free_slots_.empty() && (in_flight_.empty() || random_.uniform() < 0.9)) {
      const std::optional<uint32_t> next = window_.next();
      ASSERT_EQ(next.has_value(), there < tiles_);
      if (!next) return;
      ASSERT_EQ(*next, next_);
      // The user of a window never skips a tile that compute waits for.
      const bool can_skip =
          held_ || std::ranges::find(wanted_, false, &Read::skipped) != wanted_.end();
      there += can_skip && random_.uniform() < 0.2 ? skip() : add();
    }
  }

  uint32_t skip() {
    const auto tiles = static_cast<uint32_t>(random_.between(1, tiles_ - next_));
    window_.skip(tiles);
    wanted_.push_back({0, next_, tiles, true});
    next_ = (next_ + tiles) % tiles_;
    return tiles;
  }

  uint32_t add() {
    TileFetch read;
    read.fetch.form = packed_[next_] ? Fetch::Form::packed : Fetch::Form::stored;
    read.fetch.copied = false;
    while (packed_[next_] && next_ + read.tiles < tiles_ && packed_[next_ + read.tiles] &&
           random_.uniform() < 0.5)
      ++read.tiles;
    const bool has_place = !packed_[next_] && random_.uniform() < 0.3;
    if (has_place) read.fetch.tile.data = &place_;
    const uint64_t tag = window_.add(read).tag;
    if (has_place) placed_.insert(tag);
    wanted_.push_back({tag, next_, read.tiles});
    next_ = (next_ + read.tiles) % tiles_;
    slot_of_[tag] = *free_slots_.begin();
    free_slots_.erase(free_slots_.begin());
    in_flight_.push_back(tag);
    return read.tiles;
  }

  void arrive() {
    if (in_flight_.empty()) return;
    auto which = in_flight_.begin() + random_.between(0, std::ssize(in_flight_) - 1);
    const uint64_t tag = *which;
    in_flight_.erase(which);
    window_.arrived({tag, {}, slot_of_.at(tag)}, 0);
  }

  void encode() {
    if (encoding_.empty()) return;
    auto which = encoding_.begin();
    std::advance(which, random_.between(0, std::ssize(encoding_) - 1));
    EncodeStats stats;
    stats.elements = static_cast<int64_t>(*which);
    const uint64_t tag = *which;
    encoding_.erase(which);
    window_.encoded(tag, stats);
  }

  void take_freed() {
    for (const io::ReadResult& r : window_.take_freed()) {
      ASSERT_EQ(slot_of_.at(r.tag), r.slot) << "a slot comes back twice";
      EXPECT_FALSE(encoding_.contains(r.tag)) << "it is being encoded from";
      EXPECT_TRUE(!is_of_use(r.tag) || buffer_of_.contains(r.tag) || placed_.contains(r.tag))
          << "it is used where it is";
      EXPECT_EQ(std::ranges::find(in_flight_, r.tag), in_flight_.end());
      slot_of_.erase(r.tag);
      free_slots_.insert(r.slot);
    }
  }

  test::Random& random_;
  SweepWindow window_;
  uint32_t tiles_, slots_, buffers_;
  std::vector<bool> packed_;  // of each tile

  // The model: reads in their order, and what is where.
  std::vector<Read> wanted_;
  std::optional<Read> held_;
  uint32_t next_ = 0, following_ = 0;
  std::vector<uint64_t> in_flight_;
  std::set<uint64_t> encoding_;
  std::set<uint64_t> placed_;  // reads that are encoded into places of their own
  std::byte place_{};
  std::map<uint64_t, uint32_t> slot_of_, buffer_of_;  // by tag
  std::set<uint32_t> free_slots_;
};

TEST(SweepWindow, RandomOperationsAgreeWithAModel) {
  test::Random random("windows of a sweep");
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    Simulation s(random, static_cast<uint32_t>(random.between(1, 40)),
                 static_cast<uint32_t>(random.between(1, 8)),
                 static_cast<uint32_t>(random.between(1, 4)));
    s.want(0);
    for (int i = 0; i < 150 && !testing::Test::HasFailure(); ++i) {
      double choice = random.uniform();
      if (choice < 0.02) s.restart();
      if (choice > 0.95) s.leave_places();
      const bool jumps = choice < 0.1;
      s.want(jumps ? static_cast<uint32_t>(random.between(0, s.tiles() - 1)) : s.following());
    }
    s.finish();
    if (HasFailure()) return;
  }
}

// Nothing is read twice if tiles are used in the order of the sweep.
TEST(SweepWindow, ReadsEachTileOnceAPass) {
  constexpr uint32_t kTiles = 12, kPasses = 5;
  SweepWindow window(kTiles);
  window.restart(2);
  uint32_t reads = 0, tile = 0;
  uint64_t done = 0;
  for (uint32_t i = 0; i < kPasses * kTiles; ++i, tile = (tile + 1) % kTiles) {
    if (window.held() != nullptr) window.let_go();
    window.seek(tile);
    while (reads - done < 3 && window.next()) {
      window.add({});
      ++reads;
    }
    window.arrived({done, {}, 0}, 0);
    ASSERT_NE(window.next_to_encode(), nullptr);
    window.encoded(done++, {});
    ASSERT_TRUE(window.hold().has(tile));
  }
  EXPECT_LE(reads, kPasses * kTiles + 3);
}

}  // namespace
}  // namespace sluice
