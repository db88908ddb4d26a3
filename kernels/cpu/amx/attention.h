// Attention over one partition of the positions (kernels/cpu/simd/attention.cc) on tiles.
//
// Order of sums: a score takes the elements of its query and key in steps of 32, a value the
// positions of the partition in steps of 32 that begin at its start, as linear layers take columns;
// what a query does not see counts as zero. So a query's sums depend on nothing but its own
// positions, and are the same for one row and for many.
#pragma once

#include "kernels/cpu/amx/products.h"
#include "kernels/cpu/simd/attention_partition.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int64_t kStepElements = 32;  // of a query, or positions
constexpr int64_t kScoreBytes = kScoreStride * 4;
constexpr int64_t kRunCells = kRun / 2 * kTileLine;  // of 16 elements of a run of values

inline int64_t steps_of(int64_t elements) { return (elements + kStepElements - 1) / kStepElements; }

// A and B tiles of a product: tile r or c, and step, are so many bytes apart.
struct TileOperands {
  const std::byte* a = nullptr;
  int64_t a_line = 0, a_tile = 0, a_step = 0;
  const std::byte* b = nullptr;
  int64_t b_tile = 0;
  int64_t steps = 0;
};
// C tiles.
struct TileSums {
  float* c = nullptr;
  int64_t line = 0;          // bytes
  int64_t row = 0, col = 0;  // floats from tile to tile
};

template <class Tiles, int kRows, int kCols, int kC = 0>
inline void load_tiles(const TileSums& sums) {
  if constexpr (kC < kRows * kCols) {
    Tiles::template load<kC>(sums.c + kC / kCols * sums.row + kC % kCols * sums.col, sums.line);
    load_tiles<Tiles, kRows, kCols, kC + 1>(sums);
  }
}
template <class Tiles, int kRows, int kCols, int kC = 0>
inline void store_tiles(const TileSums& sums) {
  if constexpr (kC < kRows * kCols) {
    Tiles::template store<kC>(sums.c + kC / kCols * sums.row + kC % kCols * sums.col, sums.line);
    store_tiles<Tiles, kRows, kCols, kC + 1>(sums);
  }
}

template <class Tiles, int kRows, int kCols>
void multiply_tiles(const TileOperands& in, const TileSums& out, bool resume) {
  if (resume) {
    load_tiles<Tiles, kRows, kCols>(out);
  } else {
    zero_sums<Tiles, kRows * kCols>();
  }
#pragma GCC unroll 1
  for (int64_t step = 0; step < in.steps; ++step) {
    const std::byte* a = in.a + step * in.a_step;
    const std::byte* b = in.b + step * kTileBytes;
    Tiles::template load<kA>(a, in.a_line);
    Tiles::template load<kB + 1>(b, kTileLine);
    add_product<Tiles, false, 0, kA, kB + 1>();
    if constexpr (kCols == 2) {
      Tiles::template load<kB + 2>(b + in.b_tile, kTileLine);
      add_product<Tiles, false, 1, kA, kB + 2>();
    }
    if constexpr (kRows == 2) {
      Tiles::template load<kA + 1>(a + in.a_tile, in.a_line);
      add_product<Tiles, false, kCols, kA + 1, kB + 1>();
      if constexpr (kCols == 2) add_product<Tiles, false, 3, kA + 1, kB + 2>();
    }
  }
  store_tiles<Tiles, kRows, kCols>(out);
}

// All of `rows` x `cols` tiles, four at a time.
template <class Tiles>
void multiply_all(TileOperands in, TileSums out, int64_t rows, int64_t cols, bool resume) {
  const std::byte* b = in.b;
  float* c = out.c;
  for (int64_t row = 0; row < rows; row += 2) {
    for (int64_t col = 0; col < cols; col += 2) {
      in.b = b + col * in.b_tile;
      out.c = c + row * out.row + col * out.col;
      const bool two = col + 1 < cols;
      if (row + 1 < rows) {
        two ? multiply_tiles<Tiles, 2, 2>(in, out, resume)
            : multiply_tiles<Tiles, 2, 1>(in, out, resume);
      } else {
        two ? multiply_tiles<Tiles, 1, 2>(in, out, resume)
            : multiply_tiles<Tiles, 1, 1>(in, out, resume);
      }
    }
    in.a += 2 * in.a_tile;
  }
}

inline int64_t row_tiles(int64_t queries) { return (queries + kAmxRows - 1) / kAmxRows; }

// Queries as A tiles, [tile][step]; their lines are in as many rows as a tile has.
inline void pack_query_tiles(const Partition& p) {
  const AttentionJob& job = p.job;
  const int64_t steps = steps_of(job.key_dim);
  auto* to = reinterpret_cast<std::byte*>(p.q);
  for (int64_t query = 0; query < p.queries; ++query) {
    const int64_t row = p.first_row + query / job.heads, head = query % job.heads;
    const float* q = job.q + row * job.q_stride + head * job.key_dim;
    for (int64_t step = 0; step < steps; ++step) {
      float x[kStepElements] = {};
      const int64_t left = at_most(kStepElements, job.key_dim - step * kStepElements);
      std::memcpy(x, q + step * kStepElements, static_cast<size_t>(left) * sizeof(float));
      const int64_t line = (query / kAmxRows * steps + step) * kAmxRows + query % kAmxRows;
      to_bf16(x, kStepElements, to + line * kTileLine);
    }
  }
}

template <class Tiles>
void score_on_tiles(const Partition& p) {
  const AttentionJob& job = p.job;
  const int64_t steps = steps_of(job.key_dim);
  for (int64_t run = p.first; run < p.longest; run += kRun) {
    const int64_t count = smaller(kRun, p.longest - run), panels = (count + 15) / 16;
    for (int64_t panel = 0; panel < panels; ++panel) {
      std::byte* to = p.cells + panel * steps * kTileBytes;
      std::byte* end = key_panel(p, run + panel * 16, smaller(16, count - panel * 16), to);
      const std::byte* whole = to + steps * kTileBytes;
      if (end < whole) std::memset(end, 0, static_cast<size_t>(whole - end));
    }
    TileOperands in;
    in.a = reinterpret_cast<const std::byte*>(p.q);
    in.a_line = kTileLine;
    in.a_tile = steps * kTileBytes;
    in.a_step = kTileBytes;
    in.b = p.cells;
    in.b_tile = steps * kTileBytes;
    in.steps = steps;
    const TileSums out{p.scores + run, kScoreBytes, kAmxRows * kScoreStride, 16};
    multiply_all<Tiles>(in, out, row_tiles(p.queries), panels, false);
  }
}

// First and last runs and steps of the positions that are held.
inline int64_t first_run(const Partition& p) { return p.first / kRun * kRun; }
inline int64_t first_step(const Partition& p) { return p.first / kStepElements * kStepElements; }
inline int64_t end_step(const Partition& p) { return steps_of(p.longest) * kStepElements; }

// Weights of positions that a query does not see, to the ends of steps.
inline void clear_unseen_weights(const Partition& p) {
  for (int64_t query = 0; query < p.queries; ++query) {
    auto* weights = reinterpret_cast<uint16_t*>(p.scores + query * kScoreStride);
    const int64_t row = p.first_row + query / p.job.heads;
    const int64_t unseen = p.unseen(row), count = larger(p.count(row), unseen);
    const int64_t first = first_step(p), end = end_step(p);
    if (unseen > first)
      std::memset(weights + first, 0, static_cast<size_t>(unseen - first) * sizeof(uint16_t));
    std::memset(weights + count, 0, static_cast<size_t>(end - count) * sizeof(uint16_t));
  }
}

// Values of the run that begins at `run`, with zeros where none is held, to the ends of steps.
inline void run_cells(const Partition& p, int64_t run, std::byte* cells) {
  const int64_t end = smaller(run + kRun, p.longest);
  const int64_t begin = larger(run, p.first / 2 * 2);
  value_cells(p, begin, end - begin, cells + (begin - run) / 2 * kTileLine);
  const int64_t before = (begin - run) / 2 * kTileLine, filled = (end - run + 1) / 2 * kTileLine;
  const int64_t all = steps_of(end - run) * kTileBytes;
  for (int64_t panel = 0; panel < p.job.padded_values / 16; ++panel) {
    std::byte* at = cells + panel * kRunCells;
    if (before > 0) std::memset(at, 0, static_cast<size_t>(before));
    if (filled < all) std::memset(at + filled, 0, static_cast<size_t>(all - filled));
  }
}

// Cells of a run with zeros where `row` does not see the position.
inline void mask_cells(const Partition& p, int64_t run, int64_t row, std::byte* cells) {
  const int64_t unseen = p.unseen(row), count = p.count(row);
  const auto sees = [&](int64_t k) { return k >= unseen && k < count; };
  for (int64_t k = run; k < run + kRun; k += 2) {
    const uint32_t mask = (sees(k) ? 0xffff : 0) | (sees(k + 1) ? 0xffff0000 : 0);
    for (int64_t panel = 0; panel < p.job.padded_values / 16; ++panel) {
      std::byte* at = cells + panel * kRunCells + (k - run) / 2 * kTileLine;
      for (int64_t i = 0; i < kTileLine; i += kLanes * 4) store(at + i, load_bits(at + i) & mask);
    }
  }
}

// Queries [first, first + count) with all positions, or with those alone that `row` sees. Their
// sums wait where vector kernels have weights. Returns whether all of them are finite.
template <class Tiles>
bool weigh_on_tiles(const Partition& p, int64_t first, int64_t count, int64_t row, float* values) {
  const int64_t tiles = row_tiles(count), panels = p.job.padded_values / 16;
  auto* sums = reinterpret_cast<float*>(p.weights);  // [panel][tile of queries] tiles
  TileOperands in;
  in.a_line = kScoreBytes;
  in.a_tile = kAmxRows * kScoreBytes;
  in.a_step = kTileLine;
  in.b = p.cells;
  in.b_tile = kRunCells;
  for (int64_t run = first_run(p); run < p.longest; run += kRun) {
    run_cells(p, run, p.cells);
    if (row >= 0) mask_cells(p, run, row, p.cells);
    in.a = reinterpret_cast<const std::byte*>(p.scores + first * kScoreStride) + run * 2;
    in.steps = steps_of(smaller(kRun, p.longest - run));
    multiply_all<Tiles>(in, {sums, kTileLine, kTileFloats, tiles * kTileFloats}, tiles, panels,
                        run > first_run(p));
  }
  Vf spoilt{};
  for (int64_t query = 0; query < count; ++query) {
    const float* from = sums + query / 16 * kTileFloats + query % 16 * 16;
    float* to = values + (first + query) * p.job.padded_values;
    for (int64_t panel = 0; panel < panels; ++panel, from += tiles * kTileFloats) {
      for (int64_t i = 0; i < 16; i += kLanes) {
        const Vf sum = load(from + i);
        spoilt += sum - sum;
        store(to + panel * 16 + i, sum + 0.0f);  // no zero with a sign
      }
    }
  }
  bool finite = true;
  for (int64_t i = 0; i < kLanes; ++i) finite = finite && spoilt[i] == 0;
  return finite;
}

// Ops::attend for Units::bf16_tiles.
template <class Tiles>
void attend_on_tiles(const AttentionJob& job, int64_t partition, float* scratch,
                     AttentionSums out) {
  for (int64_t query = 0; query < job.rows * job.heads; ++query) out.total[query] = 0;
  const Partition p(job, partition, scratch);
  if (p.queries == 0) return;
  const TilesInUse<Tiles> tiles(at_most(p.queries, kAmxRows));
  pack_query_tiles(p);
  score_on_tiles<Tiles>(p);
  weigh_scores(p, out);
  clear_unseen_weights(p);
  float* values = out.values + p.first_row * job.heads * job.padded_values;
  if (weigh_on_tiles<Tiles>(p, 0, p.queries, -1, values)) return;
  // A value that is not finite spoils its products with weights of zero, too: each row by itself.
  for (int64_t row = p.first_row; row < job.rows; ++row)
    weigh_on_tiles<Tiles>(p, (row - p.first_row) * job.heads, job.heads, row, values);
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
