#include "kernels/cpu/simd/finish_sums.h"
#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/cpu/simd/streams.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int64_t kCell = 64;  // bytes

// Up to this many rows weights stream from memory through one tile of rows.
#if defined(__AVX512F__)
constexpr int64_t kStreamedRows = kFewRows;
#elif defined(__AVX2__)
constexpr int64_t kStreamedRows = 5;
#else
constexpr int64_t kStreamedRows = 2;
#endif

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

bool streams(const LinearJob& job) { return job.rows <= kStreamedRows; }

// Panels and units that are multiplied at a time.
struct Walk {
  bool decode;  // ahead, into scratch, as many rows use it; else while multiplying
  int64_t panels;
  int64_t units;
};
Walk plan_walk(const LinearJob& job) {
  Walk walk;
  const bool free = job.dtype == DType::i8 || (job.dtype == DType::bf16 && kFreeShifts);
  walk.decode = !streams(job) && job.cell_units > 1 && !free;
  walk.panels = streams(job) ? panels_at_a_time(job.dtype, job.pairs, job.rows) : 2;
  if (job.block_scales != nullptr) {
    walk.units = job.pairs ? 64 : 128;  // 128 columns
  } else if (streams(job)) {
    walk.units = job.units;
  } else {
    walk.units = kDecodedBytes / kCell / walk.panels;
  }
  return walk;
}

// Units [begin, begin + units) of `count` panels, `apart` from one to the next.
struct Chunk {
  int64_t panel, count, apart, begin, units;
};

// float32 sums of a chunk's panels: in y, or in scratch.
struct Sums {
  float* at;       // of its first row and panel
  int64_t stride;  // from row to row
  int64_t panel;   // and from panel to panel
};
const std::byte* cells_of(const LinearJob& job, const Chunk& chunk) {
  return job.weight + chunk.panel * job.panel_bytes + chunk.begin / job.cell_units * kCell;
}

// Fetches the part of a chunk that is due with tile `tile` of `tiles` of the chunk before it.
void prefetch_chunk(const LinearJob& job, const Chunk& chunk, int64_t tile, int64_t tiles) {
  const int64_t cells = (chunk.units + job.cell_units - 1) / job.cell_units;
  const int64_t begin = cells * tile / tiles, end = cells * (tile + 1) / tiles;
  for (int64_t p = 0; p < chunk.count; ++p) {
    const std::byte* from = cells_of(job, chunk) + p * chunk.apart * job.panel_bytes;
    for (int64_t c = begin; c < end; ++c) __builtin_prefetch(from + c * kCell, 0, 2);
  }
}

// Multiplies a chunk for all rows, into `sums`; finishes them if they are y and of all units.
// `next` is fetched meanwhile if many rows share the chunk.
void multiply_chunk(const LinearJob& job, const Walk& walk, const Chunk& chunk, const Chunk& next,
                    std::byte* decoded, Sums sums) {
  const std::byte* cells = cells_of(job, chunk);
  Product product;
  product.dtype = job.dtype;
  product.pairs = job.pairs;
  product.w = cells;
  product.panel_stride = chunk.apart * job.panel_bytes;
  product.panels = chunk.count;
  product.steps = chunk.units;
  product.fetch_into_l1 = job.fetch_into_l1;
  product.resume = chunk.begin > 0;
  product.y_stride = sums.stride;
  product.y_panel = sums.panel;
  if (walk.decode) {
    const int64_t stored = chunk.units / job.cell_units, decoded_bytes = 2 * stored * kCell;
    product.dtype = job.dtype == DType::f8_e4m3 ? DType::bf16 : DType::f32;
    product.w = decoded;
    for (int64_t p = 0; p < chunk.count; ++p)
      decode(job.dtype, cells + p * product.panel_stride, stored, decoded + p * decoded_bytes);
    product.panel_stride = decoded_bytes;
  }
  if (job.block_scales != nullptr) {
    product.scales = job.block_scales + chunk.panel * job.blocks + chunk.begin / walk.units;
    product.scale_stride = job.blocks;
    product.scale_panel = chunk.apart * job.blocks;
    if (!job.pairs) product.sum_factor = sum_factor(job.dtype);
  }
  if (streams(job) && chunk.units == job.units) product.finish = &job;
  const int64_t tiles = (job.rows + job.tile_rows - 1) / job.tile_rows;
  for (int64_t row = 0; row < job.rows; row += job.tile_rows) {
    if (tiles > 1) prefetch_chunk(job, next, row / job.tile_rows, tiles);
    product.rows = smaller(job.tile_rows, job.rows - row);
    product.x_stride = product.rows;
    product.x = job.x + row * job.units + chunk.begin * product.rows;
    if (product.scales != nullptr && job.x_scales != nullptr)
      product.x_scales = job.x_scales + row * job.blocks + chunk.begin / walk.units;
    product.y = sums.at + row * sums.stride;
    multiply(product);
  }
}

// Few rows, all of one tile: panels to their end. Sums of blocks wait in scratch.
void multiply_streamed(const LinearJob& job, const Walk& walk, StreamedPanels panels,
                       std::byte* scratch) {
  Sums sums{job.y + panels.first * 16, job.y_stride, panels.apart * 16};
  if (job.units > walk.units)
    sums = {reinterpret_cast<float*>(scratch + kDecodedBytes), panels.count * 16, 16};
  for (int64_t p = 0; p < panels.count; ++p) fetch_scales(job, panels.panel(p) + 1);  // the next
  for (int64_t unit = 0; unit < job.units; unit += walk.units) {
    const Chunk chunk{panels.first, panels.count, panels.apart, unit,
                      smaller(walk.units, job.units - unit)};
    multiply_chunk(job, walk, chunk, chunk, scratch, sums);
  }
  if (job.units <= walk.units) return;  // finished
  for (int64_t p = 0; p < panels.count; ++p) {
    const int64_t panel = panels.panel(p);
    finish_sums(job, panel, panel + 1, sums.at + p * sums.panel, sums.stride);
  }
}

// More rows share a chunk of x that stays in L2 while panels [begin, end) pass. Sums that are
// interrupted wait in scratch: rows of y may lie a power of two apart, of which a cache holds few.
void multiply_reused(const LinearJob& job, const Walk& walk, int64_t begin, int64_t end,
                     std::byte* scratch) {
  Sums sums{job.y + begin * 16, job.y_stride, 16};
  if (job.units > walk.units)
    sums = {reinterpret_cast<float*>(scratch + kDecodedBytes), (end - begin) * 16, 16};
  for (int64_t unit = 0; unit < job.units; unit += walk.units) {
    const int64_t units = smaller(walk.units, job.units - unit);
    for (int64_t panel = begin; panel < end; panel += walk.panels) {
      const Chunk chunk{panel, smaller(walk.panels, end - panel), 1, unit, units};
      Chunk next{panel + walk.panels, smaller(walk.panels, end - panel - walk.panels), 1, unit,
                 units};
      if (next.panel >= end) {
        next = {begin, smaller(walk.panels, end - begin), 1, unit + walk.units,
                smaller(walk.units, job.units - unit - walk.units)};
      }
      multiply_chunk(job, walk, chunk, next, scratch,
                     {sums.at + (panel - begin) * 16, sums.stride, sums.panel});
    }
  }
  finish_sums(job, begin, end, sums.at, sums.stride);
}

}  // namespace

void linear(const LinearJob& job, int64_t begin, int64_t end, std::byte* scratch) {
  const Walk walk = plan_walk(job);
  if (!streams(job)) {
    end = smaller(end, job.panels);
    if (begin < end) multiply_reused(job, walk, begin, end, scratch);
    return;
  }
  for_streamed_panels(job, streams_of(job, walk.panels), begin, end, [&](StreamedPanels panels) {
    multiply_streamed(job, walk, panels, scratch);
  });
}

}  // namespace sluice::cpu::SLUICE_ISA
