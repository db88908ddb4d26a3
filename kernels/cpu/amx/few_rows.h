// Up to 64 rows: whole columns, with the sums in registers. Weights are read once, in order.
#pragma once

#include "kernels/cpu/amx/one_row.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// Panels of all streams, one after the other: `length` places of each.
struct StreamedRun {
  StreamedPanels panels;
  int64_t length;
};

// The next steps of some panels, decoded in a ring in L1 while the step before is multiplied. Steps
// run on into the next panels.
template <Stored kStored, int kPanels, int64_t kAhead>
class StepRing {
  using Steps = StoredSteps<kStored>;
  static constexpr int64_t kAheadBytes = 2048;  // that are fetched, of each panel

 public:
  StepRing(const LinearJob& job, const StreamedRun& run, std::byte* ring)
      : steps_(job.units / kStepUnits),
        left_(run.length),
        panel_bytes_(job.panel_bytes),
        apart_(run.panels.apart * job.panel_bytes),
        panel_(job.weight + run.panels.first * job.panel_bytes),
        ring_(ring) {
    for (int64_t i = 0; i < kAhead; ++i) decode_next();
  }
  // B tiles of the step that is to be multiplied, and how far it is from panel to panel.
  const std::byte* tiles() const { return slot(taken_); }
  static constexpr int64_t stride() { return kTileBytes; }
  // They are done with.
  [[gnu::always_inline]] inline void advance() {
    ++taken_;
    decode_next();
  }

 private:
  std::byte* slot(int64_t i) const { return ring_ + i % (2 * kAhead) * kPanels * kTileBytes; }
  [[gnu::always_inline]] inline void decode_next() {
    if (left_ == 0) return;
    const int64_t at = step_ * Steps::kStepBytes;
    const int64_t bytes = at_most(Steps::kStepBytes, panel_bytes_ - at);
    std::byte* to = slot(decoded_++);
#pragma GCC unroll 4
    for (int64_t p = 0; p < kPanels; ++p) {
      cells_.decode_step(panel_ + p * apart_ + at, bytes, to + p * kTileBytes,
                         [](const std::byte* cell) __attribute__((always_inline)) {
                           __builtin_prefetch(cell + kAheadBytes);
                         });
    }
    if (++step_ < steps_) return;
    step_ = 0;
    panel_ += panel_bytes_;
    --left_;
  }

  Steps cells_;
  const int64_t steps_;
  int64_t left_;  // panels of each stream, from the one that is decoded on
  const int64_t panel_bytes_;
  const int64_t apart_;
  const std::byte* panel_;  // of the first stream
  std::byte* ring_;
  int64_t step_ = 0;
  int64_t decoded_ = 0, taken_ = 0;  // steps
};

// The same where the tiles are what is stored: they are loaded as they lie in memory, but for a
// step that ends early.
template <Stored kStored, int kPanels>
class StepsInPlace {
  using Steps = StoredSteps<kStored>;
  static constexpr int64_t kAheadBytes = 2048;  // of each panel

 public:
  StepsInPlace(const LinearJob& job, const StreamedRun& run, std::byte* filled)
      : panel_bytes_(job.panel_bytes),
        apart_(run.panels.apart * job.panel_bytes),
        whole_(job.panel_bytes / Steps::kStepBytes),
        steps_(job.units / kStepUnits),
        left_(run.length),
        panel_(job.weight + run.panels.first * job.panel_bytes),
        filled_(filled) {
    begin_step();
  }
  const std::byte* tiles() const { return tiles_; }
  int64_t stride() const { return stride_; }
  [[gnu::always_inline]] inline void advance() {
    if (++step_ == steps_) {
      step_ = 0;
      panel_ += panel_bytes_;
      --left_;
    }
    if (left_ > 0) begin_step();
  }

 private:
  [[gnu::always_inline]] inline void begin_step() {
    tiles_ = panel_ + step_ * Steps::kStepBytes;
    stride_ = apart_;
    if (step_ == whole_) return fill_up();
#pragma GCC unroll 4
    for (int64_t p = 0; p < kPanels; ++p) {
      const std::byte* ahead = tiles_ + p * apart_ + kAheadBytes;
#pragma GCC unroll 16
      for (int64_t at = 0; at < kTileBytes; at += kTileLine) __builtin_prefetch(ahead + at);
    }
  }
  void fill_up() {
    const int64_t bytes = panel_bytes_ - step_ * Steps::kStepBytes;
    for (int64_t p = 0; p < kPanels; ++p) {
      Steps().decode_step(tiles_ + p * apart_, bytes, filled_ + p * kTileBytes,
                          [](const std::byte*) {});
    }
    tiles_ = filled_;
    stride_ = kTileBytes;
  }

  const int64_t panel_bytes_, apart_;
  const int64_t whole_, steps_;  // of a panel
  int64_t left_;                 // panels of each stream, from this one on
  const std::byte* panel_;       // of the first stream
  std::byte* filled_;
  int64_t step_ = 0;
  const std::byte* tiles_ = nullptr;
  int64_t stride_ = 0;
};

template <class Tiles, bool kBytes, int kPanels, int kPanel = 0>
inline void few_panels(const std::byte* b, int64_t stride) {
  if constexpr (kPanel < kPanels) {
    constexpr int kTile = kB + kPanel % 3;
    Tiles::template load<kTile>(b + kPanel * stride, kTileLine);
    add_product<Tiles, kBytes, kPanel, kA, kTile>();
    few_panels<Tiles, kBytes, kPanels, kPanel + 1>(b, stride);
  }
}
template <class Tiles, bool kBytes, int kRows, int kRow = 0>
inline void one_panel(const std::byte* a) {
  if constexpr (kRow < kRows) {
    constexpr int kTile = kA + kRow % 3;
    Tiles::template load_past<kTile>(a + kRow * kTileBytes, kTileLine);
    add_product<Tiles, kBytes, kRow, kTile, kB + 2>();
    one_panel<Tiles, kBytes, kRows, kRow + 1>(a);
  }
}

// C register of (row, panel) is row * kPanels + panel.
template <class Tiles, bool kBytes, int kRows, int kPanels>
inline void few_step(const std::byte* a, const std::byte* b, int64_t stride) {
  if constexpr (kRows == 1) {
    Tiles::template load<kA>(a, kTileLine);
    few_panels<Tiles, kBytes, kPanels>(b, stride);
  } else if constexpr (kPanels == 1) {
    Tiles::template load<kB + 2>(b, kTileLine);
    one_panel<Tiles, kBytes, kRows>(a);
  } else {
    block_step<Tiles, kBytes, kRows, kPanels>(a, kTileBytes, b, stride);
  }
}

// Calls body(row tile, panel, floats of sums before it) for kRows tiles of rows x kPanels panels.
template <int kRows, int kPanels, class Body>
inline void each_sum(StreamedPanels panels, Body&& body) {
  for (int64_t c = 0; c < int64_t{kRows} * kPanels; ++c)
    body(c / kPanels, panels.panel(c % kPanels), c * kTileFloats);
}

template <class Tiles, Stored kStored, int kRows, int kPanels, class Weights>
void multiply_columns(const LinearJob& job, StreamedPanels panels, Weights& weights,
                      const AmxScratch& scratch) {
  constexpr int kSums = kRows * kPanels;
  const int64_t steps = job.units / kStepUnits;
  const int64_t x_step = kRows == 1 ? job.rows * kTileLine : kRows * kTileBytes;
  const auto* x = reinterpret_cast<const std::byte*>(job.x);
  zero_sums<Tiles, kSums>();
#pragma GCC unroll 1
  for (int64_t step = 0; step < steps; ++step) {
    few_step<Tiles, StoredSteps<kStored>::kBytes, kRows, kPanels>(
        x + step * x_step, weights.tiles(), weights.stride());
    weights.advance();
    if (job.block_scales == nullptr) continue;
    if ((step + 1) % kBlockSteps != 0 && step + 1 < steps) continue;
    store_sums<Tiles, kSums>(scratch.stage);
    zero_sums<Tiles, kSums>();
    each_sum<kRows, kPanels>(panels, [&](int64_t tile, int64_t panel, int64_t at) {
      add_scaled(job, tile * kAmxRows, panel, step, scratch.stage + at, scratch.sums + at);
    });
  }
  if (job.block_scales == nullptr) store_sums<Tiles, kSums>(scratch.sums);
}

// Tiles of rows up to which tile loads from memory are as fast as vector loads.
constexpr int kInPlaceRows = 1;

// kRows tiles of rows x kPanels panels at a time: multiply(panels) puts sums into scratch.sums.
template <int kRows, int kPanels, class Multiply>
inline void multiply_run(const LinearJob& job, const StreamedRun& run, const AmxScratch& scratch,
                         Multiply&& multiply) {
  StreamedPanels panels = run.panels;
  for (int64_t i = 0; i < run.length; ++i, ++panels.first) {
    for (int64_t p = 0; p < kPanels; ++p) fetch_scales(job, panels.panel(p) + 1);  // the next
    multiply(panels);
    each_sum<kRows, kPanels>(panels, [&](int64_t tile, int64_t panel, int64_t at) {
      const int64_t row = tile * kAmxRows, lines = at_most(kAmxRows, job.rows - row);
      for (int64_t r = 0; r < lines; ++r)
        finish_line(job, row + r, panel, scratch.sums + at + r * 16);
    });
  }
}

template <class Tiles, Stored kStored, int kRows, int kPanels>
void few_rows(const LinearJob& job, const StreamedRun& run, const AmxScratch& scratch) {
  constexpr int64_t kAhead = kRows == 1 ? 1 : 2;  // steps
  static_assert(kRows * kPanels <= 4);
  static_assert(2 * kAhead * kPanels * kTileBytes <= kAmxDecodedBytes);
  constexpr bool kInPlace = kRows <= kInPlaceRows && !StoredSteps<kStored>::kCodes;
  std::conditional_t<kInPlace, StepsInPlace<kStored, kPanels>, StepRing<kStored, kPanels, kAhead>>
      weights(job, run, scratch.cells);
  multiply_run<kRows, kPanels>(job, run, scratch, [&](StreamedPanels panels) {
    multiply_columns<Tiles, kStored, kRows, kPanels>(job, panels, weights, scratch);
  });
}

// Up to a tile of rows.
template <class Tiles, Stored kStored, int kPanels>
void few_lines(const LinearJob& job, const StreamedRun& run, const AmxScratch& scratch) {
#if defined(__AVX512BF16__)
  if (job.rows == 1) {
    return multiply_run<1, kPanels>(job, run, scratch, [&](StreamedPanels panels) {
      one_row<kStored, kPanels>(job, panels, scratch);
    });
  }
#endif
  few_rows<Tiles, kStored, 1, kPanels>(job, run, scratch);
}

// Takes as many panels as there are streams, or fewer where a stream has ended.
template <class Tiles, Stored kStored>
void few_rows_of_run(const LinearJob& job, const StreamedRun& run, const AmxScratch& scratch) {
  const int64_t count = run.panels.count;
  if (job.rows > 3 * kAmxRows) return few_rows<Tiles, kStored, 4, 1>(job, run, scratch);
  if (job.rows > 2 * kAmxRows) return few_rows<Tiles, kStored, 3, 1>(job, run, scratch);
  if (job.rows > kAmxRows) {
    if (count == 2) return few_rows<Tiles, kStored, 2, 2>(job, run, scratch);
    return few_rows<Tiles, kStored, 2, 1>(job, run, scratch);
  }
  if (count == 4) return few_lines<Tiles, kStored, 4>(job, run, scratch);
  if (count == 3) return few_lines<Tiles, kStored, 3>(job, run, scratch);
  if (count == 2) return few_lines<Tiles, kStored, 2>(job, run, scratch);
  few_lines<Tiles, kStored, 1>(job, run, scratch);
}

// Places [begin, end) of the streams.
template <class Tiles, Stored kStored>
void multiply_streams(const LinearJob& job, int64_t begin, int64_t end, const AmxScratch& scratch) {
  StreamedRun run{{0, 0, 0}, 0};
  for_streamed_panels(job, streams_of(job, job.streams), begin, end, [&](StreamedPanels panels) {
    if (run.length > 0 && panels.count == run.panels.count &&
        panels.first == run.panels.first + run.length) {
      ++run.length;
      return;
    }
    if (run.length > 0) few_rows_of_run<Tiles, kStored>(job, run, scratch);
    run = {panels, 1};
  });
  if (run.length > 0) few_rows_of_run<Tiles, kStored>(job, run, scratch);
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
