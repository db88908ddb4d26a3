// The parts of linear layers (ops.h: linear_few_rows, linear_many.h); one file each.
#pragma once

#include <cstdint>

#include "kernels/cuda/gemm.h"
#include "kernels/cuda/ops.h"

namespace sluice::cuda {

// Scales of codes of x: at[r * row_step + b * block_step] for row r and columns of block b of
// kScaleBlock. block_step 0: a row has one scale.
struct InputScales {
  float* at = nullptr;  // null: there are no codes
  int64_t row_step = 1, block_step = 0;
};

// Row-major, without gaps between rows. With scales they are values of E4M3, or with `scaled` those
// times the scales, rounded.
struct Bf16Rows {
  uint16_t* data = nullptr;
  int64_t rows = 0, cols = 0;
  InputScales scales;
  bool scaled = false;
  // Columns of a cell of the weight whose fragments the order of x's columns follows (panels.cuh);
  // 0: columns are in order.
  int64_t cell = 0;
};
struct E4M3Rows {
  uint8_t* data = nullptr;
  int64_t cols = 0;
  InputScales scales;
};
struct I8Rows {
  int8_t* data = nullptr;
  int64_t cols = 0;
  float* scales = nullptr;  // of each row
  int64_t cell = 0;         // as of Bf16Rows
};

// Rounds x, with zeros in the rows and columns that only `to` has. The scale is NaN if x is not
// finite.
void round_rows_bf16(Tensor x, Bf16Rows to, Stream stream);
void round_rows_e4m3(Tensor x, E4M3Rows to, Stream stream);
void round_rows_i8(Tensor x, I8Rows to, Stream stream);    // -127..127
void round_rows_i8(Tensor x, Bf16Rows to, Stream stream);  // the same, as the values of the codes

// Rows of the weight that a block of the tensor cores' kernel takes, columns that one warp takes at
// a time, and tokens of one fragment.
inline constexpr int64_t kMmaRows = 16;
inline constexpr int64_t kMmaCols = 128;
inline constexpr int64_t kMmaTokens = 8;
inline constexpr int64_t kI8Cols = 16;       // of one vector
inline constexpr int64_t kProcessors = 132;  // of an H100 or H200

// y = x w^T for bf16 and f8_e4m3 codes in panels, x in the order of their fragments. x.cols is a
// multiple of kMmaCols.
void gemv_panels(Bf16Rows x, const Weight& w, const float* bias, const Fusion& fusion, Tensor y,
                 Stream stream);
// The same of i8: exact sums of integers.
void gemv_panels(I8Rows x, const Weight& w, const float* bias, const Fusion& fusion, Tensor y,
                 Stream stream);
// The bits of the first one, x being rounded to bf16 on the way: of so few rows that the launch
// that is saved counts for more than that every block reads them as they are. It alone norms x.
void gemv_panels(Tensor x, const Weight& w, const float* bias, const Fusion& fusion, Tensor y,
                 Stream stream);
bool gemv_panels_rounds(int64_t rows, int64_t cols);
bool gemv_panels_norms(const InputNorm& norm, const Weight& w, int64_t rows);
// The same for grouped codes, x being rounded to bf16 in `workspace`, of few_rows_workspace_bytes.
void gemv_grouped(Tensor x, const Weight& w, const float* bias, std::byte* workspace, Tensor y,
                  Stream stream);
bool gemv_grouped_fits(const Weight& w);
// The same with float32 arithmetic, for any other.
void gemv_f32(Tensor x, const Weight& w, const float* bias, Tensor y, Stream stream);

// Rows [first, first + rows) of a weight as bf16, without gaps between them: bf16, E4M3, with its
// scales where these are of blocks, or a weight in groups (grouped.h). `first` begins a panel.
void decode_rows(const Weight& w, int64_t first, int64_t rows, uint16_t* to, Stream stream);
// The same of E4M3, as codes.
void unpack_rows(const Weight& w, int64_t first, int64_t rows, uint8_t* to, Stream stream);
// Rows [first, first + rows) of a weight of i8 in two's complement, with zeros in the rows and
// columns that only `to` has.
void decode_rows_i8(const Weight& w, int64_t first, int64_t rows, I8Matrix to, Stream stream);
// The scales of a weight with whole_blocks as cuBLASLt wants them: of each block of rows those of
// its columns, whose number is rounded up to whole kBlockScaleCols.
inline constexpr int64_t kBlockScaleCols = 4;
void block_scales(const Weight& w, float* to, Stream stream);

// y = y * x_scales, by rows, * scales + bias, by columns; each may be null.
void finish_columns(Tensor y, const float* x_scales, const float* scales, const float* bias,
                    Stream stream);
// y = sums of i8 products * x_scales, by rows, * scales (+ bias), by columns.
void finish_sums(const int32_t* sums, int64_t sums_stride, const float* x_scales,
                 const float* scales, const float* bias, Tensor y, Stream stream);

}  // namespace sluice::cuda
