// The functions of one instruction set: what kernels/cpu/ops.h describes, and the parts that its
// translation units share.
#pragma once

#include "kernels/cpu/ops.h"

namespace sluice::cpu::SLUICE_ISA {

extern const Ops kOps;

// y[rows][16 * panels] = x w^T, each element summed over the units in order. Sums of i8 cells are
// int32 (modulo 2^32), in y's memory.
struct Product {
  const uint32_t* x = nullptr;  // unit s of row r: x[s * x_stride + r]
  int64_t x_stride = 0;
  int64_t rows = 0;
  DType dtype = DType::f32;  // of the cells
  bool pairs = false;        // units are bf16 pairs, where Ops::bf16_units says so; else float32
  const std::byte* w = nullptr;  // panel p begins at w + p * panel_stride
  int64_t panel_stride = 0;
  int64_t panels = 0;
  int64_t steps = 0;           // units
  bool fetch_into_l1 = false;  // as LinearJob has it
  float* y = nullptr;
  int64_t y_stride = 0;
  int64_t y_panel = 16;  // from a panel's columns of y to those of the next
  bool resume = false;   // go on from the sums in y; else from zero
  // Scales of the sum; null: none. With scales the sum starts from zero, is multiplied by
  // x_scales[r * scale_stride], if there are any, and by scales[p * scale_panel], and only then
  // added to y (resume) or stored.
  const float* scales = nullptr;
  const float* x_scales = nullptr;
  int64_t scale_stride = 0;
  int64_t scale_panel = 0;
  float sum_factor = 1;  // with scales: of such a sum, before them
  // The layer to be finished; null: none. y is then this layer's, from its first row on, and gets
  // what finish_sums.h makes of the sums. This avoids waiting for y's lines, which other cores have
  // had since.
  const LinearJob* finish = nullptr;
};
void multiply(const Product& product);
// Panels that it takes side by side: 1, 2 or 4.
int64_t panels_at_a_time(DType dtype, bool pairs, int64_t rows);

// Rows for which the product decodes a cell once, as it goes. For many more, decoding ahead pays.
inline constexpr int64_t kFusedRows = kFewRows;
// True where bf16 becomes float32 without a cost: the shift or mask runs in units that the products
// leave free.
#if defined(__AVX2__) && !defined(__AVX512F__)
inline constexpr bool kFreeShifts = true;
#else
inline constexpr bool kFreeShifts = false;
#endif

// `count` cells of 8-bit floating point into twice as many of bf16, smaller by kXFactor and
// sum_factor (float8.h), others into cells of float32.
void decode(DType dtype, const std::byte* cells, int64_t count, std::byte* out);

// 16 rows of 64 bytes, as a matrix of 16 x 16 words, transposed into 16 cells.
void transpose_words(const std::byte* const rows[16], int64_t offset, std::byte* cells);

// Words of four codes (k .. k + 3) of a row into the order of cells of FP8 (quant/format.h): in
// each 16 bytes, the first two codes of four rows, then their last two. `bytes`: whole cells.
void interleave_codes(std::byte* words, int64_t bytes);

void pack_rows(const PackJob& job);
void pack_whole(const WholeJob& job);
void linear(const LinearJob& job, int64_t begin, int64_t end, std::byte* scratch);
void grouped(const GroupedJob& job, int64_t begin, int64_t end, std::byte* scratch);
// Scores of one query in a partition, count <= kPartition: scores[k] becomes its score for position
// begin + k (see AttentionParams), minus infinity for unseen positions. May write kLanes beyond
// count.
struct ScoreRow {
  float* scores = nullptr;
  const float* key_scales = nullptr;  // or null
  int64_t begin = 0;                  // position of scores[0]
  int64_t unseen = 0;                 // scores before what it attends to
  int64_t count = 0;
  int64_t position = 0;  // of the query
  float alibi_slope = 0;
};
void change_scores(const AttentionJob& job, const ScoreRow& row);

void attend(const AttentionJob& job, int64_t partition, float* scratch, AttentionSums out);
void index_scores(const AttentionJob& job, const float* weights, int64_t partition, float* scratch,
                  float* scores);
void merge(const AttentionJob& job, AttentionSums total, AttentionSums part);
void finish(const AttentionJob& job, AttentionSums total, float* out, int64_t out_stride);
void norm(const NormJob& job, const float* x, float* y);
void add_norm(const NormJob& job, float* residual, const float* x, float* y);
float sum_squares(const float* x, int64_t count);
void add(float* x, const float* y, int64_t count);
void scale(float* x, float factor, int64_t count);
void soft_cap(float* x, float cap, int64_t count);
void clamp(float* x, float limit, int64_t count);
void causal_conv(const ConvJob& job);
void scan(const ScanJob& job);
void selective_scan(const SelectiveJob& job);
void activate(const ActivationJob& job, const float* x, const float* up, int64_t count, float* out);
void rope(float* head, const float* cos, const float* sin, int64_t half);
void rope_neighbours(float* head, const float* cos, const float* sin, int64_t half);
void to_bf16(const float* x, int64_t count, std::byte* out);
void to_float8(const float* x, int64_t count, DType dtype, float scale, std::byte* out);
void encode(const EncodeJob& job, EncodeSums* sums);
uint32_t largest(const std::byte* source, DType stored, int64_t count);
void interleave(const InterleaveJob& job);
void pack_codes(const PackCodesJob& job);
void order_codes(const OrderCodesJob& job);
int64_t multiply_add(Units kind, int64_t rounds, uint64_t* seen);
uint64_t read(const std::byte* from, int64_t bytes, ReadWay way);

}  // namespace sluice::cpu::SLUICE_ISA
