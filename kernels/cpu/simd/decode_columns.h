// Columns of a panel, and the scales of their groups, decoded into scratch.
#pragma once

#include "kernels/cpu/simd/group_scales.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

inline void decode_codes(const GroupedJob& job, const BlockRows& rows) {
  switch (job.table) {
    case CodeTable::e2m1:
      return decode_float_run(rows);
    case CodeTable::e4m3:
      return decode_e4m3_run(rows);
    case CodeTable::own:
      return decode_own_run(rows, job.values, job.wide);
    default:
      decode_run(rows, job.bits);
  }
}

// Decodes `count` columns, and the scales and minimums of blocks.
inline void decode_columns(const GroupedJob& job, int64_t panel, int64_t first, int64_t count,
                           DecodedGroups into) {
  const std::byte* from = job.codes + (panel * job.cols + first) / job.block_cols * job.block_bytes;
  const int64_t group_step = job.block_cols / job.group_cols;  // groups of a block
  for (int64_t lane = 0; lane < 16; lane += kLanes) {
    const std::byte* block = from;
    DecodedGroups to = into;
    for (int64_t col = 0; col < count; col += job.block_cols) {
      const BlockRows rows{block, to, lane, job.grid, job.code_values};
      for (int64_t line = 0; lane == 0 && line < job.block_bytes; line += kCell)
        fetch_ahead(block + line);
      if (job.type == DType::u8) {
        decode_codes(job, rows);
      } else {
        decode_block(rows, job.type);
        to.scales += group_step * 16;
        to.mins += group_step * 16;
      }
      to.cells += job.block_cols * (job.wide ? 64 : 32);
      block += job.block_bytes;
    }
  }
}

// Stores the scale and the minimum of a group of grouped codes, [16] each.
inline void store_scale(const GroupedJob& job, int64_t panel, int64_t group, float* scale,
                        float* min) {
  for (int64_t lane = 0; lane < 16; lane += kLanes) {
    const GroupScale s = group_scale(job, panel, group, lane);
    store(scale + lane, s.scale);
    store(min + lane, s.min);
  }
}

// Decodes the columns of a block of integers with the scales of its segments.
inline void decode_whole_block(const GroupedJob& job, int64_t panel, int64_t block,
                               DecodedGroups to) {
  const int64_t first = block * kBlockCols, end = block_end(job, block);
  decode_columns(job, panel, first, smaller(kBlockCols, job.cols - first), to);
  int64_t s = 0;
  for (int64_t begin = first; job.type == DType::u8 && begin < end; ++s) {
    const Segment segment = segment_from(job, begin, end);
    store_scale(job, panel, segment.group, to.scales + s * 16, to.mins + s * 16);
    begin = segment.end;
  }
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
