// Pairs of rows and experts, sorted by expert; those of one by rising rows. One block, whose warps
// count neighbouring rows each: the experts of one row differ, so that no two lanes count the same.
#include <algorithm>

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/experts.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/simt.h"

namespace sluice::cuda {
namespace {

constexpr int kMostWarps = 32;
constexpr int kChoicesOfLane = static_cast<int>(kMostTopK) / 32;

struct ListArgs {
  const int32_t* experts;
  int rows, top_k, count;
  ExpertLists lists;
};

// Calls body(row, choice, expert) for the warp's rows, one after the other, in a lane for each
// choice; those of some rows are on their way together.
template <class Body>
__device__ void each_choice(const ListArgs& a, Body body) {
  constexpr int kAhead = 8;
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int each = (a.rows + warps - 1) / warps;
  const int begin = warp * each, end = begin + each < a.rows ? begin + each : a.rows;
  for (int first = begin; first < end; first += kAhead) {
    int32_t experts[kAhead][kChoicesOfLane];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
#pragma unroll
      for (int j = 0; j < kChoicesOfLane; ++j) {
        const int choice = lane + 32 * j;
        const bool there = first + i < end && choice < a.top_k;
        experts[i][j] = there ? a.experts[int64_t{first + i} * a.top_k + choice] : -1;
      }
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
#pragma unroll
      for (int j = 0; j < kChoicesOfLane; ++j) {
        if (experts[i][j] >= 0) body(first + i, lane + 32 * j, experts[i][j]);
      }
      __syncwarp();  // another lane may count the same expert for the next row
    }
  }
}

// Returns the sum of x of the lanes before, and adds all of them to *total.
__device__ inline int sum_before(int x, int* total) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int sum = x;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += other;
  }
  const int before = *total + sum - x;
  *total += __shfl_sync(kAllLanes, sum, 31);
  return before;
}

// Begins of experts, and their tiles, by one warp. `totals` becomes the begins.
__device__ inline void make_tiles(const ListArgs& a, int* totals) {
  const int lane = static_cast<int>(threadIdx.x), tile_rows = static_cast<int>(a.lists.tile_rows);
  int pairs = 0, tiles = 0;
  for (int first = 0; first < a.count; first += 32) {
    const int e = first + lane;
    const int mine = e < a.count ? totals[e] : 0;
    const int begin = sum_before(mine, &pairs);
    int tile = sum_before((mine + tile_rows - 1) / tile_rows, &tiles);
    if (e >= a.count) continue;
    totals[e] = begin;
    for (int at = 0; at < mine; at += tile_rows)
      a.lists.tiles[tile++] = {e, begin + at, mine - at < tile_rows ? mine - at : tile_rows, 0};
  }
  for (int t = tiles + lane; t < a.lists.most_tiles; t += 32) a.lists.tiles[t] = {-1, 0, 0, 0};
}

__global__ void __launch_bounds__(kMostWarps * 32) expert_lists_kernel(ListArgs a) {
  wait_for_earlier();
  int* counts = &shared_memory<int>();  // [warps][count]
  const int warps = static_cast<int>(blockDim.x) / 32, warp = static_cast<int>(threadIdx.x) / 32;
  int* totals = counts + warps * a.count;  // [count]
  int* mine = counts + warp * a.count;
  for (int i = static_cast<int>(threadIdx.x); i < warps * a.count;
       i += static_cast<int>(blockDim.x))
    counts[i] = 0;
  __syncthreads();
  each_choice(a, [&](int, int, int expert) { ++mine[expert]; });
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < a.count; e += static_cast<int>(blockDim.x)) {
    int sum = 0;
    for (int w = 0; w < warps; ++w) {
      const int count = counts[w * a.count + e];
      counts[w * a.count + e] = sum;  // of the warps before
      sum += count;
    }
    totals[e] = sum;
  }
  __syncthreads();
  if (warp == 0) make_tiles(a, totals);
  __syncthreads();
  each_choice(a, [&](int row, int choice, int expert) {
    const int at = totals[expert] + mine[expert]++;
    a.lists.rows[at] = row;
    a.lists.places[int64_t{row} * a.top_k + choice] = at;
  });
}

}  // namespace

int64_t most_expert_tiles(int64_t pairs, int64_t count, int64_t tile_rows) {
  return std::min(pairs, pairs / tile_rows + count);
}

void make_expert_lists(const int32_t* experts, int64_t rows, int64_t top_k, int64_t count,
                       const ExpertLists& lists, Stream stream) {
  check(count <= kMostExperts && top_k <= kMostTopK && lists.tile_rows > 0 &&
            lists.most_tiles >= most_expert_tiles(rows * top_k, count, lists.tile_rows),
        "room for tiles of all experts");
  if (rows == 0) return;
  const auto counts = static_cast<uint32_t>(count) * uint32_t{sizeof(int32_t)};
  const auto warps = static_cast<uint32_t>(
      std::min<int64_t>({kMostWarps, rows, (kMostSharedBytes - counts) / counts}));
  launch_early(expert_lists_kernel, {{1}, {warps * 32}, (warps + 1) * counts}, stream,
               ListArgs{experts, static_cast<int>(rows), static_cast<int>(top_k),
                        static_cast<int>(count), lists});
}

}  // namespace sluice::cuda
