// Linear layers on tiles: y = x w^T, of bf16 and E4M3 weights (decoded to bf16) and of bytes.
//
// Order of sums, for every number of rows: an output element has one tile element, which takes the
// columns in steps of a tile (32 bf16 or 64 i8), in order; padding counts as zeros. Where it is
// interrupted it passes through memory as it is. So a row's result depends on nothing but the row.
// With block scales each 128 columns are summed from zero, then scaled, then added.
//
// Up to 16 rows are one tile of x and four panels at a time, one of each stream and to its end:
// weights are read once, in order. More rows take 32 rows x 2 panels; a chunk of 2 panels (32 KiB)
// stays in L1 while all rows pass, and the rows' part of that chunk in L2 while some more panels
// do.
#pragma once

#include "kernels/cpu/amx/tiles.h"
#include "kernels/cpu/simd/cells.h"
#include "kernels/cpu/simd/finish_sums.h"
#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/streams.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int64_t kStepUnits = 16;  // units of x in a tile's line
constexpr int64_t kStepLines = kTileBytes / kTileLine;
constexpr int64_t kFewPanels = 4;
constexpr int64_t kManyPanels = 2;
constexpr int64_t kBlockSteps = 4;  // of 32 columns: 128
// How far ahead weights that stream are fetched, of all panels together.
constexpr int64_t kAheadBytes = 8192;
static_assert(kStepLines == kAmxRows && kTileBytes * kManyPanels * 16 == kAmxDecodedBytes);

// Tile registers: C is 0 to 3. A is 4, and 5 where there are 32 rows; B the rest.
constexpr int kA = 4;
constexpr int kB = 5;

inline int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

// Parts of a thread's scratch (amx_scratch_bytes).
struct AmxScratch {
  explicit AmxScratch(std::byte* scratch)
      : cells(scratch),
        stage(reinterpret_cast<float*>(scratch + kAmxDecodedBytes)),
        sums(stage + 4 * kTileBytes / 4) {}
  std::byte* cells;  // decoded or padded
  float* stage;      // 4 tiles
  float* sums;       // [panels][tiles of rows] tiles
};

// The steps of one layer that are multiplied at a time.
struct AmxWalk {
  AmxWalk(const LinearJob& job, int64_t panels)
      : steps(job.units / kStepUnits),
        chunk(job.block_scales != nullptr ? kBlockSteps : kAmxDecodedBytes / kTileBytes / panels),
        step_bytes(job.dtype == DType::f8_e4m3 ? kTileBytes / 2 : kTileBytes) {}
  int64_t steps;
  int64_t chunk;
  int64_t step_bytes;  // of a panel as stored
};

// B tiles: step s of panel p begins at `from` + p * stride + s * kTileBytes.
struct TileCells {
  const std::byte* from = nullptr;
  int64_t stride = 0;
};

inline void decode_e4m3(const std::byte* from, int64_t bytes, std::byte* out) {
#if defined(__AVX512BF16__)
  decode(DType::f8_e4m3, from, bytes / kCell, out);
#else
  const Float8ToF32<DType::f8_e4m3>::Exact cells;
  const auto bits = [](Vf operand) {
    return as_bits(operand * (kXFactor * sum_factor(DType::f8_e4m3)));
  };
  for (int64_t at = 0; at < bytes; at += kLanes * 4) {
    const Vu raw = load_bits(from + at);
    std::byte* to = out + at / kCell * 2 * kCell + at % kCell;
    const Vu first = bits(cells.operand<0>(raw)), second = bits(cells.operand<1>(raw));
    const Vu third = bits(cells.operand<2>(raw)), fourth = bits(cells.operand<3>(raw));
    store(to, first >> 16 | (second & 0xffff0000));
    store(to + kCell, third >> 16 | (fourth & 0xffff0000));
  }
#endif
}

// Panels over steps [step, step + steps): as they are stored, or in scratch where they must be
// decoded or end within a tile.
inline TileCells tile_cells(const LinearJob& job, const AmxWalk& walk, StreamedPanels panels,
                            int64_t step, int64_t steps, std::byte* scratch) {
  const std::byte* from = job.weight + panels.first * job.panel_bytes + step * walk.step_bytes;
  const int64_t apart = panels.apart * job.panel_bytes;
  const int64_t stored = at_most(steps * walk.step_bytes, job.panel_bytes - step * walk.step_bytes);
  const bool codes = job.dtype == DType::f8_e4m3;
  if (!codes && stored == steps * walk.step_bytes) return {from, apart};
  const int64_t stride = steps * kTileBytes, filled = codes ? 2 * stored : stored;
  for (int64_t p = 0; p < panels.count; ++p) {
    std::byte* to = scratch + p * stride;
    if (codes) {
      decode_e4m3(from + p * apart, stored, to);
    } else {
      std::memcpy(to, from + p * apart, static_cast<size_t>(stored));
    }
    std::memset(to + filled, 0, static_cast<size_t>(stride - filled));
  }
  return {scratch, stride};
}

// Sets the registers up for one call and frees them at its end, since the thread may not multiply
// again for long, and its next product may have other rows.
template <class Tiles>
struct TilesInUse {
  explicit TilesInUse(int64_t rows) {
    TileConfig config;
    for (int tile = 0; tile < 8; ++tile) {
      config.line_bytes[tile] = kTileLine;
      config.rows[tile] = static_cast<uint8_t>(tile < kB ? rows : kStepLines);
    }
    Tiles::configure(config);
  }
  ~TilesInUse() { Tiles::release(); }
  TilesInUse(const TilesInUse&) = delete;
  TilesInUse& operator=(const TilesInUse&) = delete;
};

template <class Tiles, bool kBytes, int kC, int kTileA, int kTileB>
inline void add_product() {
  if constexpr (kBytes) {
    Tiles::template add_product_i8<kC, kTileA, kTileB>();
  } else {
    Tiles::template add_product_bf16<kC, kTileA, kTileB>();
  }
}

template <class Tiles, int kCount, int kC = 0>
inline void zero_sums() {
  if constexpr (kC < kCount) {
    Tiles::template zero<kC>();
    zero_sums<Tiles, kCount, kC + 1>();
  }
}
// Tile kC at c + kC * stride (floats).
template <class Tiles, int kCount, int kC = 0>
inline void store_sums(float* c, int64_t stride) {
  if constexpr (kC < kCount) {
    Tiles::template store<kC>(c + kC * stride, kTileLine);
    store_sums<Tiles, kCount, kC + 1>(c, stride);
  }
}

// sums (+)= products * scales, of rows [row, row + 16) and one panel in `step`.
inline void add_scaled(const LinearJob& job, int64_t row, int64_t panel, int64_t step,
                       const float* products, float* sums) {
  const int64_t block = step / kBlockSteps;
  const float scale = job.block_scales[panel * job.blocks + block];
  const int64_t lines = at_most(kAmxRows, job.rows - row);
  for (int64_t i = 0; i < lines * 16; i += kLanes) {
    Vf scaled = load(products + i);
    if (job.x_scales != nullptr) scaled *= job.x_scales[(row + i / 16) * job.blocks + block];
    scaled *= scale;
    store(sums + i, step == 0 ? scaled : load(sums + i) + scaled);
  }
}

// ---- up to 16 rows

template <class Tiles, bool kBytes, int kPanels, int kPanel = 0>
inline void few_panels(const std::byte* b, int64_t stride) {
  if constexpr (kPanel < kPanels) {
    constexpr int kTile = kB + kPanel % 3;
    Tiles::template load<kTile>(b + kPanel * stride, kTileLine);
    add_product<Tiles, kBytes, kPanel, kA, kTile>();
    few_panels<Tiles, kBytes, kPanels, kPanel + 1>(b, stride);
  }
}

template <class Tiles, bool kBytes, int kPanels>
void few_rows(const LinearJob& job, StreamedPanels panels, const AmxScratch& scratch) {
  const AmxWalk walk(job, kFewPanels);
  const int64_t line_bytes = job.rows * kTileLine;  // of a tile of x
  const auto* x = reinterpret_cast<const std::byte*>(job.x);
  for (int64_t p = 0; p < kPanels; ++p) fetch_scales(job, panels.panel(p) + 1);  // the next
  zero_sums<Tiles, kPanels>();
  for (int64_t step = 0; step < walk.steps; step += walk.chunk) {
    const int64_t steps = at_most(walk.chunk, walk.steps - step);
    const TileCells cells = tile_cells(job, walk, panels, step, steps, scratch.cells);
    const bool streams = cells.from != scratch.cells;
#pragma GCC unroll 1
    for (int64_t s = 0; s < steps; ++s) {
      const std::byte* b = cells.from + s * kTileBytes;
      for (int64_t p = 0; streams && p < kPanels; ++p) {
        const std::byte* ahead = b + p * cells.stride + kAheadBytes / kPanels;
        for (int64_t at = 0; at < kTileBytes; at += kTileLine) __builtin_prefetch(ahead + at);
      }
      Tiles::template load<kA>(x + (step + s) * line_bytes, kTileLine);
      few_panels<Tiles, kBytes, kPanels>(b, cells.stride);
    }
    if (job.block_scales == nullptr) continue;
    store_sums<Tiles, kPanels>(scratch.stage, kTileBytes / 4);
    zero_sums<Tiles, kPanels>();
    for (int64_t p = 0; p < kPanels; ++p) {
      const int64_t at = p * kTileBytes / 4;
      add_scaled(job, 0, panels.panel(p), step, scratch.stage + at, scratch.sums + at);
    }
  }
  if (job.block_scales == nullptr) store_sums<Tiles, kPanels>(scratch.sums, kTileBytes / 4);
  for (int64_t p = 0; p < kPanels; ++p) {
    const int64_t panel = panels.panel(p);
    finish_sums(job, panel, panel + 1, scratch.sums + p * kTileBytes / 4, 16);
  }
}

// ---- more rows

// Tiles of rows x panels at a time: C register of (row, panel) is row * kCols + panel.
template <class Tiles, bool kBytes, int kRows, int kCols>
inline void block_step(const std::byte* a, int64_t a_stride, const std::byte* b, int64_t b_stride) {
  Tiles::template load<kA>(a, kTileLine);
  Tiles::template load<kB + 1>(b, kTileLine);
  add_product<Tiles, kBytes, 0, kA, kB + 1>();
  if constexpr (kCols == 2) {
    Tiles::template load<kB + 2>(b + b_stride, kTileLine);
    add_product<Tiles, kBytes, 1, kA, kB + 2>();
  }
  if constexpr (kRows == 2) {
    Tiles::template load<kA + 1>(a + a_stride, kTileLine);
    add_product<Tiles, kBytes, kCols, kA + 1, kB + 1>();
    if constexpr (kCols == 2) add_product<Tiles, kBytes, kCols + 1, kA + 1, kB + 2>();
  }
}

// C register kC from, or to, the sums of its row and panel.
template <class Tiles, int kRows, int kCols, int kC = 0>
inline void load_block(const float* sums, int64_t panel_stride) {
  if constexpr (kC < kRows * kCols) {
    Tiles::template load<kC>(sums + kC / kCols * (kTileBytes / 4) + kC % kCols * panel_stride,
                             kTileLine);
    load_block<Tiles, kRows, kCols, kC + 1>(sums, panel_stride);
  }
}
template <class Tiles, int kRows, int kCols, int kC = 0>
inline void store_block(float* sums, int64_t panel_stride) {
  if constexpr (kC < kRows * kCols) {
    Tiles::template store<kC>(sums + kC / kCols * (kTileBytes / 4) + kC % kCols * panel_stride,
                              kTileLine);
    store_block<Tiles, kRows, kCols, kC + 1>(sums, panel_stride);
  }
}

// Some steps of all rows' products with some panels.
struct AmxChunk {
  int64_t panel = 0;
  int64_t step = 0;
  int64_t steps = 0;
  TileCells cells;
  float* sums = nullptr;     // of the first panel and tile of rows
  int64_t panel_stride = 0;  // floats of sums
};

template <class Tiles, bool kBytes, int kRows, int kCols>
void multiply_block(const LinearJob& job, const AmxChunk& chunk, int64_t row_tile, float* stage) {
  const int64_t a_stride = job.units * 4 * kAmxRows;
  const std::byte* a =
      reinterpret_cast<const std::byte*>(job.x) + row_tile * a_stride + chunk.step * kTileBytes;
  const std::byte* b = chunk.cells.from;
  float* sums = chunk.sums + row_tile * (kTileBytes / 4);
  const bool scaled = job.block_scales != nullptr;
  if (scaled || chunk.step == 0) {
    zero_sums<Tiles, kRows * kCols>();
  } else {
    load_block<Tiles, kRows, kCols>(sums, chunk.panel_stride);
  }
#pragma GCC unroll 1
  for (int64_t s = 0; s < chunk.steps; ++s) {
    block_step<Tiles, kBytes, kRows, kCols>(a + s * kTileBytes, a_stride, b + s * kTileBytes,
                                            chunk.cells.stride);
  }
  if (!scaled) return store_block<Tiles, kRows, kCols>(sums, chunk.panel_stride);
  store_sums<Tiles, kRows * kCols>(stage, kTileBytes / 4);
  for (int64_t c = 0; c < int64_t{kRows} * kCols; ++c) {
    const int64_t p = c % kCols, row = (row_tile + c / kCols) * kAmxRows;
    add_scaled(job, row, chunk.panel + p, chunk.step, stage + c * kTileBytes / 4,
               sums + c / kCols * (kTileBytes / 4) + p * chunk.panel_stride);
  }
}

// Fetches the part of the next chunk's stored weights that is due with part `part` of `parts`.
inline void fetch_part(const LinearJob& job, const AmxWalk& walk, int64_t panel, int64_t count,
                       int64_t step, int64_t part, int64_t parts) {
  const int64_t steps = at_most(walk.chunk, walk.steps - step);
  const int64_t lines = steps * walk.step_bytes / kTileLine;
  for (int64_t p = 0; p < count; ++p) {
    const std::byte* from = job.weight + (panel + p) * job.panel_bytes + step * walk.step_bytes;
    for (int64_t line = lines * part / parts; line < lines * (part + 1) / parts; ++line)
      __builtin_prefetch(from + line * kTileLine, 0, 2);
  }
}

template <class Tiles, bool kBytes, int kCols>
void multiply_rows(const LinearJob& job, const AmxChunk& chunk, int64_t row_tile, int64_t left,
                   float* stage) {
  if (left >= 2) return multiply_block<Tiles, kBytes, 2, kCols>(job, chunk, row_tile, stage);
  multiply_block<Tiles, kBytes, 1, kCols>(job, chunk, row_tile, stage);
}

template <class Tiles, bool kBytes>
void many_rows(const LinearJob& job, int64_t begin, int64_t end, const AmxScratch& scratch) {
  const AmxWalk walk(job, kManyPanels);
  const int64_t row_tiles = (job.rows + kAmxRows - 1) / kAmxRows;
  AmxChunk chunk;
  chunk.panel_stride = row_tiles * kTileBytes / 4;
  for (chunk.step = 0; chunk.step < walk.steps; chunk.step += walk.chunk) {
    chunk.steps = at_most(walk.chunk, walk.steps - chunk.step);
    for (chunk.panel = begin; chunk.panel < end; chunk.panel += kManyPanels) {
      const int64_t panels = at_most(kManyPanels, end - chunk.panel);
      chunk.cells =
          tile_cells(job, walk, {chunk.panel, panels, 1}, chunk.step, chunk.steps, scratch.cells);
      chunk.sums = scratch.sums + (chunk.panel - begin) * chunk.panel_stride;
      const bool more = chunk.panel + panels < end;  // panels of this chunk
      const int64_t next = more ? chunk.panel + panels : begin;
      const int64_t next_step = more ? chunk.step : chunk.step + walk.chunk;
      for (int64_t tile = 0; tile < row_tiles; tile += 2) {
        fetch_part(job, walk, next, at_most(kManyPanels, end - next), next_step, tile / 2,
                   (row_tiles + 1) / 2);
        if (panels == 2) {
          multiply_rows<Tiles, kBytes, 2>(job, chunk, tile, row_tiles - tile, scratch.stage);
        } else {
          multiply_rows<Tiles, kBytes, 1>(job, chunk, tile, row_tiles - tile, scratch.stage);
        }
      }
    }
  }
  for (int64_t panel = begin; panel < end; ++panel)
    finish_sums(job, panel, panel + 1, scratch.sums + (panel - begin) * chunk.panel_stride, 16);
}

template <class Tiles, bool kBytes>
void few_rows_of_panels(const LinearJob& job, StreamedPanels panels, const AmxScratch& scratch) {
  if (panels.count == 4) return few_rows<Tiles, kBytes, 4>(job, panels, scratch);
  if (panels.count == 3) return few_rows<Tiles, kBytes, 3>(job, panels, scratch);
  if (panels.count == 2) return few_rows<Tiles, kBytes, 2>(job, panels, scratch);
  few_rows<Tiles, kBytes, 1>(job, panels, scratch);
}

template <class Tiles, bool kBytes>
void multiply_panels(const LinearJob& job, int64_t begin, int64_t end, const AmxScratch& scratch) {
  if (job.rows > kAmxRows)
    return many_rows<Tiles, kBytes>(job, begin, at_most(end, job.panels), scratch);
  for_streamed_panels(job, streams_of(job, kFewPanels), begin, end, [&](StreamedPanels panels) {
    few_rows_of_panels<Tiles, kBytes>(job, panels, scratch);
  });
}

// Ops::linear for LinearJob::tiles.
template <class Tiles>
void linear_on_tiles(const LinearJob& job, int64_t begin, int64_t end, std::byte* scratch) {
  const TilesInUse<Tiles> tiles(at_most(job.rows, kAmxRows));
  const AmxScratch parts(scratch);
  if (job.x_offsets != nullptr) return multiply_panels<Tiles, true>(job, begin, end, parts);
  multiply_panels<Tiles, false>(job, begin, end, parts);
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
