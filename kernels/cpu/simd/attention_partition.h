// Shared by the parts of attention: one call's queries and scratch (kernels/cpu/simd/attention.cc).
#pragma once

#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"
#include "kernels/kv_cache.h"

namespace sluice::cpu::SLUICE_ISA {

inline constexpr int64_t kRun = kAttentionRun;  // positions that are decoded together
inline constexpr int64_t kAhead = 32;           // positions that are fetched ahead

// Queries whose sums are in registers while values are taken as they are stored.
#if defined(__AVX2__)
inline constexpr int64_t kStoredRows = 6;
#else
inline constexpr int64_t kStoredRows = 3;
#endif

inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
inline bool in_pairs([[maybe_unused]] const AttentionJob& job) {
#if defined(__AVX512BF16__)
  return job.units == Units::bf16_pairs || job.units == Units::bf16_tiles;
#else
  return false;
#endif
}
inline bool is_byte(DType dtype) { return dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2; }
inline int64_t element_bytes(DType dtype) {
  return is_byte(dtype) ? 1 : dtype == DType::bf16 ? 2 : 4;
}

// The queries that have positions in a partition, and the scratch of one call.
struct Partition {
  Partition(const AttentionJob& j, int64_t index, float* scratch) : job(j) {
    begin = index * kPartition;
    // Row i attends to positions [0, first_position + i]; the leading rows may end before `begin`.
    const int64_t reached = begin - j.first_position;
    first_row = reached > 0 ? smaller(reached, j.rows) : 0;
    queries = (j.rows - first_row) * j.heads;
    longest = count(j.rows - 1);
    first = queries > 0 ? unseen(first_row) : 0;
    q = reinterpret_cast<uint32_t*>(scratch);
    scores = scratch + kQueries * j.padded_keys;
    weights = reinterpret_cast<uint32_t*>(scores + kQueries * kScoreStride);
    cells = reinterpret_cast<std::byte*>(weights + kQueries * kPartition);
    if (first >= longest) queries = 0;
    if (queries > 0) locate();
  }

  // Positions of this partition that row i attends to.
  int64_t count(int64_t i) const { return smaller(job.first_position + i + 1 - begin, kPartition); }

  // Number of positions at the partition's start that row i does not attend to.
  int64_t unseen(int64_t i) const {
    if (job.window == 0 && job.chunk == 0) return 0;
    const int64_t from = first_attended(job.window, job.chunk, job.first_position + i);
    return smaller(larger(from - begin, 0), count(i));
  }

  // Returns whether any query attends to the position.
  bool holds(int64_t k) const { return k >= first && k < longest; }

  // body(k, count, base, offset) for positions [k, k + count), which lie in one block, `base` bytes
  // from the cache's start, from its `offset`th on; of chosen positions for each by itself.
  template <class Body>
  void each_block(Body&& body) const {
    for (int64_t k = first; job.chosen != nullptr && k < longest; ++k) {
      const int64_t position = job.chosen[begin + k];
      body(k, 1, job.block_table[position / job.block_size] * job.block_stride,
           position % job.block_size);
    }
    if (job.chosen != nullptr) return;
    const int32_t* block = job.block_table + (begin + first) / job.block_size;
    int64_t offset = (begin + first) % job.block_size;
    for (int64_t k = first, count; k < longest; k += count, offset = 0) {
      count = smaller(job.block_size - offset, longest - k);
      body(k, count, *block++ * job.block_stride, offset);
    }
  }

  void locate();  // key_at and value_at

  // Scales of the keys or values.
  void copy_scales(const std::byte* scales, float same, float* to) const {
    for (int64_t k = 0; k < first; ++k) to[k] = 0;
    each_block([&](int64_t k, int64_t count, int64_t base, int64_t offset) {
      const auto bytes = static_cast<size_t>(count) * sizeof(float);
      if (scales != nullptr) std::memcpy(to + k, scales + base + offset * 4, bytes);
    });
    for (int64_t k = first; k < longest && scales == nullptr; ++k) to[k] = same;
    for (int64_t k = longest; k < kScoreStride; ++k) to[k] = 0;
  }

  Partition(const Partition&) = delete;

  const AttentionJob& job;
  int64_t begin;               // first position
  int64_t first_row;           // rows from here on have positions here
  int64_t queries;             // of those rows: row-major, heads within a row
  int64_t longest;             // positions of the last row, which has the most, up to their end
  int64_t first;               // positions before it no row attends to: they are not touched
  uint32_t* q;                 // [units][queries]
  float* scores;               // [queries][kScoreStride]
  uint32_t* weights;           // [units][queries]
  std::byte* cells;            // of kRun keys or values
  int64_t key_at[kPartition];  // byte offset of each position's key
  const int64_t* value_at = key_at;  // and value, which often is the same
  int64_t value_places[kPartition];
};

// Returns whether queries are so few that keys and values are taken as they are stored. Codes are
// decoded again for each few queries, so for more queries they are decoded first.
inline bool take_stored(const Partition& p) {
  return p.queries <= (is_byte(p.job.dtype) ? kStoredRows : kFusedRows);
}

// The blocks of a sequence lie apart, so the hardware does not foresee the next one.
inline void prefetch_value(const AttentionJob& job, const std::byte* from) {
  const int64_t bytes = job.value_dim * element_bytes(job.dtype);
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(from + at, 0, 2);
}

// Keys [first, first + count), count <= 16, as one panel: cells of all of padded_keys, lanes across
// keys. Returns their end.
std::byte* key_panel(const Partition& p, int64_t first, int64_t count, std::byte* out);
// Values [first, first + count) as cells [padded_values / 16][kRun], or in pairs, from an even
// position on, [padded_values / 16][kRun / 2].
void value_cells(const Partition& p, int64_t first, int64_t count, std::byte* cells);

// Products of queries and keys into scores, these into weights, and the sums of those.
void weigh_scores(const Partition& p, AttentionSums out);

// values[queries] = weights x values, of all positions of the partition.
void weigh_values(const Partition& p, float* values);

}  // namespace sluice::cpu::SLUICE_ISA
