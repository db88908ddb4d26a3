// Shared by the loops of linear.h: tile registers in use, sums in them, and a thread's scratch.
#pragma once

#include "kernels/cpu/amx/tiles.h"
#include "kernels/cpu/simd/finish_sums.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int64_t kStepUnits = 16;  // units of x in a tile's line
constexpr int64_t kStepLines = kTileBytes / kTileLine;
constexpr int64_t kTileFloats = kTileBytes / 4;
constexpr int64_t kBlockSteps = 4;  // of 32 columns: 128
static_assert(kStepLines == kAmxRows && kTileBytes == kAmxTileBytes);

// Tile registers: C is 0 to 3. A is 4, and the next where there are more rows; B the rest.
constexpr int kA = 4;
constexpr int kB = 5;

inline int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

// Parts of a thread's scratch (amx_scratch_bytes).
struct AmxScratch {
  explicit AmxScratch(std::byte* scratch)
      : cells(scratch),
        stage(reinterpret_cast<float*>(scratch + kAmxDecodedBytes)),
        sums(stage + 4 * kTileFloats) {}
  std::byte* cells;  // B tiles that were decoded, or filled up with zeros
  float* stage;      // 4 tiles
  float* sums;       // tiles of rows x panels
};

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
// Tile kC to c + kC * kTileFloats.
template <class Tiles, int kCount, int kC = 0>
inline void store_sums(float* c) {
  if constexpr (kC < kCount) {
    Tiles::template store<kC>(c + kC * kTileFloats, kTileLine);
    store_sums<Tiles, kCount, kC + 1>(c);
  }
}

// One step of tiles of rows x panels: C register of (row, panel) is row * kCols + panel. `a` is
// loaded past L1, where the panels' steps are. prepare(C register) is called before its product.
template <class Tiles, bool kBytes, int kRows, int kCols, class Prepare>
[[gnu::always_inline]] inline void block_step(const std::byte* a, int64_t a_stride,
                                              const std::byte* b, int64_t b_stride,
                                              Prepare&& prepare) {
  static_assert(kRows <= 2 && kCols <= 2);
  prepare.template sum<0>();
  Tiles::template load_past<kA>(a, kTileLine);
  Tiles::template load<kB + 1>(b, kTileLine);
  add_product<Tiles, kBytes, 0, kA, kB + 1>();
  if constexpr (kCols == 2) {
    prepare.template sum<1>();
    Tiles::template load<kB + 2>(b + b_stride, kTileLine);
    add_product<Tiles, kBytes, 1, kA, kB + 2>();
  }
  if constexpr (kRows == 2) {
    prepare.template sum<kCols>();
    Tiles::template load_past<kA + 1>(a + a_stride, kTileLine);
    add_product<Tiles, kBytes, kCols, kA + 1, kB + 1>();
    if constexpr (kCols == 2) {
      prepare.template sum<3>();
      add_product<Tiles, kBytes, 3, kA + 1, kB + 2>();
    }
  }
}
// Sums that are there already.
struct SumsReady {
  template <int kC>
  void sum() const {}
};
template <class Tiles, bool kBytes, int kRows, int kCols>
[[gnu::always_inline]] inline void block_step(const std::byte* a, int64_t a_stride,
                                              const std::byte* b, int64_t b_stride) {
  block_step<Tiles, kBytes, kRows, kCols>(a, a_stride, b, b_stride, SumsReady());
}

// sums (+)= products * scales, of rows [row, row + 16) and one panel in the block of `step`.
inline void add_scaled(const LinearJob& job, int64_t row, int64_t panel, int64_t step,
                       const float* products, float* sums) {
  const int64_t block = step / kBlockSteps;
  const float scale = job.block_scales[panel * job.blocks + block];
  const int64_t lines = at_most(kAmxRows, job.rows - row);
  for (int64_t i = 0; i < lines * 16; i += kLanes) {
    Vf scaled = load(products + i);
    if (job.x_scales != nullptr) scaled *= job.x_scales[(row + i / 16) * job.blocks + block];
    scaled *= scale;
    store(sums + i, block == 0 ? scaled : load(sums + i) + scaled);
  }
}

// y of a row and one panel, from 16 sums.
inline void finish_line(const LinearJob& job, int64_t row, int64_t panel, const float* sums) {
  float* y = job.y + row * job.y_stride + panel * 16;
  for (int64_t o = 0; o < 16; o += kLanes)
    store(y + o, finished(job, row, panel * 16 + o, load(sums + o)));
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
