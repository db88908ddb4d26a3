// More than 64 rows: 32 rows x 2 panels at a time. A chunk of the two panels' steps stays in L1
// while all rows pass, which are loaded past it; the rows' part of a chunk, and the sums of a group
// of panels, stay in L2.
#pragma once

#include "kernels/cpu/amx/chunks.h"
#include "kernels/cpu/amx/stored_steps.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int64_t kManyPanels = 2;
constexpr int64_t kBlockFloats = 4 * kTileFloats;  // sums of 32 rows x 2 panels
constexpr int64_t kHalfBytes = kAmxDecodedBytes / 2;
constexpr int64_t kDecodedPanel = kHalfBytes / kManyPanels;
static_assert(kDecodedPanel == kAmxChunkSteps * kTileBytes);

// `total` things in `over` turns.
struct Evenly {
  int64_t total = 0;
  int64_t over = 1;
  int64_t credit = 0;
  template <class Body>
  [[gnu::always_inline]] inline void turn(Body&& body) {
    for (credit += total; credit >= over; credit -= over) body();
  }
};

// A chunk of the steps of two panels, or of one.
struct ManyPart {
  int64_t panel = 0;
  int64_t panels = 0;
  int64_t chunk = 0;
  int64_t first = 0;  // step
  int64_t steps = 0;
  const std::byte* stored = nullptr;
  int64_t cells = 0;  // of each panel
  bool decode = false;
};

// Brings what comes next nearer, a little with each step that is multiplied: the next part's
// weights into L2, or, where they must be decoded, those into L1 and the part's behind it into L2.
template <Stored kStored>
class PartAhead {
 public:
  PartAhead(const LinearJob& job) : panel_bytes_(job.panel_bytes) {}

  void begin(const ManyPart& next, const ManyPart& after, std::byte* to, int64_t turns) {
    const int64_t bytes = next.cells * kCell;
    decode_ = next.decode;
    from_ = next.stored;
    after_ = after.stored;
    to_ = to;
    jump_ = panel_bytes_ - bytes;
    to_jump_ = kDecodedPanel - next.cells * Steps::kCellTile;
    cells_ = left_ = next.cells;
    due_ = {next.panels * next.cells, turns};
    const int64_t filled = next.cells * Steps::kCellTile, all = next.steps * kTileBytes;
    for (int64_t p = 0; decode_ && filled < all && p < next.panels; ++p)
      std::memset(to + p * kDecodedPanel + filled, 0, static_cast<size_t>(all - filled));
  }
  void begin_x(const std::byte* x, int64_t lines, int64_t turns) {
    x_ = x;
    x_due_ = {lines, turns};
  }

  [[gnu::always_inline]] inline void turn(const StoredSteps<kStored>& steps) {
    due_.turn([&]() __attribute__((always_inline)) { cell(steps); });
    x_due_.turn([&]() __attribute__((always_inline)) {
      __builtin_prefetch(x_, 0, 2);
      x_ += kTileLine;
    });
  }

 private:
  using Steps = StoredSteps<kStored>;

  [[gnu::always_inline]] inline void cell(const Steps& steps) {
    if (decode_) {
      __builtin_prefetch(after_, 0, 2);
      steps.decode_cell(from_, to_);
      to_ += Steps::kCellTile;
      after_ += kCell;
    } else {
      __builtin_prefetch(from_, 0, 2);
    }
    from_ += kCell;
    if (--left_ > 0) return;
    left_ = cells_;
    from_ += jump_;
    after_ += jump_;
    to_ += to_jump_;
  }

  const int64_t panel_bytes_;
  bool decode_ = false;
  const std::byte* from_ = nullptr;
  const std::byte* after_ = nullptr;
  std::byte* to_ = nullptr;
  int64_t jump_ = 0, to_jump_ = 0, cells_ = 0, left_ = 0;
  Evenly due_;
  const std::byte* x_ = nullptr;
  Evenly x_due_;
};

// 32 rows or fewer of a part.
struct ManyBlock {
  const std::byte* a = nullptr;
  int64_t a_stride = 0;  // from tile to tile
  const std::byte* b = nullptr;
  int64_t b_stride = 0;  // from panel to panel
  int64_t steps = 0;
  float* sums = nullptr;             // [rows][panels] tiles
  const float* next_sums = nullptr;  // of the next block
  bool resume = false;
};

// The sums of the block before leave their registers, and a block's enter them, just before its
// first product into each.
template <class Tiles>
struct SumsExchange {
  float* before;  // null: left
  const float* sums;
  bool resume;
  template <int kC>
  [[gnu::always_inline]] inline void sum() const {
    if (before != nullptr) Tiles::template store<kC>(before + kC * kTileFloats, kTileLine);
    if (resume) {
      Tiles::template load<kC>(sums + kC * kTileFloats, kTileLine);
    } else {
      Tiles::template zero<kC>();
    }
  }
};

// `before`: the sums of the block before, which are still in registers, or null. Leaves its own.
template <class Tiles, Stored kStored, int kRows, int kCols>
void multiply_block(const ManyBlock& block, float* before, PartAhead<kStored>& ahead) {
  constexpr bool kBytes = StoredSteps<kStored>::kBytes;
  const StoredSteps<kStored> stored;
  block_step<Tiles, kBytes, kRows, kCols>(block.a, block.a_stride, block.b, block.b_stride,
                                          SumsExchange<Tiles>{before, block.sums, block.resume});
  ahead.turn(stored);
  const float* next = block.next_sums;
#pragma GCC unroll 1
  for (int64_t s = 1; s < block.steps; ++s) {
    for (int line = 0; line < 6; ++line, next += 16) __builtin_prefetch(next);
    block_step<Tiles, kBytes, kRows, kCols>(block.a + s * kTileBytes, block.a_stride,
                                            block.b + s * kTileBytes, block.b_stride);
    ahead.turn(stored);
  }
}

// Multiplies a part whose blocks have scales.
template <class Tiles, Stored kStored, int kRows, int kCols>
void multiply_scaled(const LinearJob& job, const ManyPart& part, int64_t row,
                     const ManyBlock& block, float* stage, PartAhead<kStored>& ahead) {
  const StoredSteps<kStored> stored;
  for (int64_t s = 0; s < block.steps; s += kBlockSteps) {
    zero_sums<Tiles, kRows * kCols>();
    const int64_t end = at_most(s + kBlockSteps, block.steps);
#pragma GCC unroll 1
    for (int64_t i = s; i < end; ++i) {
      block_step<Tiles, StoredSteps<kStored>::kBytes, kRows, kCols>(
          block.a + i * kTileBytes, block.a_stride, block.b + i * kTileBytes, block.b_stride);
      ahead.turn(stored);
    }
    store_sums<Tiles, kRows * kCols>(stage);
    for (int64_t c = 0; c < int64_t{kRows} * kCols; ++c)
      add_scaled(job, row + c / kCols * kAmxRows, part.panel + c % kCols, part.first + s,
                 stage + c * kTileFloats, block.sums + c * kTileFloats);
  }
}

// All rows with panels [begin, end). Sums wait in scratch, [pair of panels][32 rows] blocks.
template <class Tiles, Stored kStored>
class ManyRows {
 public:
  ManyRows(const LinearJob& job, int64_t begin, int64_t end, const AmxScratch& scratch)
      : job_(job),
        scratch_(scratch),
        begin_(begin),
        end_(end),
        pairs_((end - begin + kManyPanels - 1) / kManyPanels),
        row_tiles_((job.rows + kAmxRows - 1) / kAmxRows),
        blocks_((row_tiles_ + 1) / 2),
        ahead_(job) {}

  void multiply() {
    const int64_t parts = job_.chunks.count * pairs_;
    ManyPart part = part_of(0), next = part_of(1);
    ahead_.begin(part, next, half(0), 1);
    ahead_.begin_x(nullptr, 0, 1);
    ahead_.turn({});  // all of it
    for (int64_t i = 0; i < parts; ++i) {
      const ManyPart after = part_of(i + 2);
      const int64_t turns = blocks_ * part.steps;
      ahead_.begin(next, after, half(i + 1), turns);
      fetch_x(part.chunk, i % pairs_, turns);
      for (int64_t block = 0; block < blocks_; ++block) multiply_rows(part, i, block);
      part = next;
      next = after;
    }
    store_pending();
    finish();
  }

 private:
  using Steps = StoredSteps<kStored>;

  // Part `i`; behind the last, the first of the group that the thread is likely to have next, which
  // is fetched only.
  ManyPart part_of(int64_t i) const {
    ManyPart part;
    part.chunk = i / pairs_;
    part.panel = begin_ + i % pairs_ * kManyPanels;
    part.panels = at_most(kManyPanels, end_ - part.panel);
    const bool behind = part.chunk >= job_.chunks.count;
    if (behind) {
      part.chunk = 0;
      part.panel += end_ - begin_;
      part.panels = part.panel >= job_.panels ? 0 : at_most(kManyPanels, job_.panels - part.panel);
    }
    part.first = chunk_begin(job_.chunks, part.chunk);
    part.steps = chunk_steps(job_.chunks, part.chunk);
    const int64_t from = part.first * Steps::kStepBytes;
    part.stored = job_.weight + part.panel * job_.panel_bytes + from;
    part.cells = at_most(part.steps * Steps::kStepBytes, job_.panel_bytes - from) / kCell;
    const bool whole = part.cells * Steps::kCellTile == part.steps * kTileBytes;
    part.decode = !behind && (Steps::kCodes || !whole);
    return part;
  }

  std::byte* half(int64_t i) const { return scratch_.cells + i % 2 * kHalfBytes; }

  // Starts prefetches of the next chunk's x (behind the last chunk: the first one's, for the next
  // group): the part that is due with pair `pair`.
  void fetch_x(int64_t chunk, int64_t pair, int64_t turns) {
    const int64_t next = chunk + 1 < job_.chunks.count ? chunk + 1 : 0;
    const int64_t lines = chunk_steps(job_.chunks, next) * row_tiles_ * kStepLines;
    const int64_t first = lines * pair / pairs_;
    ahead_.begin_x(x_of(next, 0) + first * kTileLine, lines * (pair + 1) / pairs_ - first, turns);
  }
  const std::byte* x_of(int64_t chunk, int64_t tile) const {
    return reinterpret_cast<const std::byte*>(job_.x) +
           chunk_tile(job_.chunks, chunk, tile, row_tiles_) * kTileBytes;
  }
  float* sums_of(int64_t pair, int64_t block) const {
    return scratch_.sums + (pair * blocks_ + block) * kBlockFloats;
  }

  void multiply_rows(const ManyPart& part, int64_t i, int64_t block) {
    ManyBlock b;
    b.a = x_of(part.chunk, 2 * block);
    b.a_stride = part.steps * kTileBytes;
    b.b = part.decode ? half(i) : part.stored;
    b.b_stride = part.decode ? kDecodedPanel : job_.panel_bytes;
    b.steps = part.steps;
    b.sums = sums_of(i % pairs_, block);
    b.next_sums = block + 1 < blocks_ ? b.sums + kBlockFloats : sums_of((i + 1) % pairs_, 0);
    b.resume = part.chunk > 0;
    const bool two = 2 * block + 1 < row_tiles_;
    if (part.panels == 2) {
      if (two) return multiply_tiles<2, 2>(part, block, b);
      return multiply_tiles<1, 2>(part, block, b);
    }
    if (two) return multiply_tiles<2, 1>(part, block, b);
    multiply_tiles<1, 1>(part, block, b);
  }
  template <int kRows, int kCols>
  void multiply_tiles(const ManyPart& part, int64_t block, const ManyBlock& b) {
    if (job_.block_scales != nullptr) {
      return multiply_scaled<Tiles, kStored, kRows, kCols>(job_, part, 2 * block * kAmxRows, b,
                                                           scratch_.stage, ahead_);
    }
    if (pending_ != nullptr && pending_tiles_ != kRows * kCols) store_pending();
    multiply_block<Tiles, kStored, kRows, kCols>(b, pending_, ahead_);
    pending_ = b.sums;
    pending_tiles_ = kRows * kCols;
  }
  // Sums that are still in registers.
  void store_pending() {
    if (pending_ == nullptr) return;
    if (pending_tiles_ == 4) store_sums<Tiles, 4>(pending_);
    if (pending_tiles_ == 2) store_sums<Tiles, 2>(pending_);
    if (pending_tiles_ == 1) store_sums<Tiles, 1>(pending_);
    pending_ = nullptr;
  }

  // Row by row, so that a run of all the group's channels is written.
  void finish() const {
    const int64_t apart = blocks_ * kBlockFloats;  // from pair to pair
    for (int64_t row = 0; row < job_.rows; ++row) {
      const int64_t block = row / (2 * kAmxRows), tile = row / kAmxRows % 2;
      const float* sums = sums_of(0, block) + row % kAmxRows * 16;
      for (int64_t panel = begin_; panel < end_; panel += 2, sums += apart) {
        const int64_t cols = at_most(2, end_ - panel);
        for (int64_t col = 0; col < cols; ++col) {
          const float* from = sums + (tile * cols + col) * kTileFloats;
          __builtin_prefetch(from + 4 * 16);  // of a later row
          finish_line(job_, row, panel + col, from);
        }
      }
    }
  }

  const LinearJob& job_;
  const AmxScratch& scratch_;
  const int64_t begin_, end_, pairs_, row_tiles_, blocks_;
  PartAhead<kStored> ahead_;
  float* pending_ = nullptr;
  int pending_tiles_ = 0;
};

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
