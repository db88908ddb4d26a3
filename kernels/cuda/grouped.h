// Weights in groups (quant/groups.h), in the row layout: parts of embed, linear_few_rows and the
// encoder.
#pragma once

#include "kernels/cuda/ops.h"
#include "quant/groups.h"

namespace sluice::cuda {

// Multiplies at most kFewRows rows by tensor cores, as gemv_grouped (gemv.h): blocks, and grouped
// codes of floats and tables that gemv_grouped does not take. `workspace`: of
// few_rows_workspace_bytes, in which x is rounded to bf16.
void gemv_units(Tensor x, const Weight& w, const float* bias, std::byte* workspace, Tensor y,
                Stream stream);
bool gemv_units_fits(const Weight& w);
// The same in float32, for all. `round`: x is first rounded to bf16.
void grouped_few_rows(Tensor x, const Weight& w, const float* bias, bool round, Tensor y,
                      Stream stream);
// Rows [first, first + rows) as bf16, without gaps between them: what the codes mean, rounded, but
// for scales of rows; columns in the order of inputs.
void grouped_decode_rows(const Weight& w, int64_t first, int64_t rows, uint16_t* to, Stream stream);
void grouped_embed(const Weight& table, const int32_t* ids, Tensor out, Stream stream);
// out = rows [first, first + out.rows) in float32, columns in the order of inputs.
void grouped_rows(const Weight& w, int64_t first, Tensor out, Stream stream);
// Encodes what is_quantized() (quant/encode.h). The source is the device's; an order of columns is
// there already (EncodeArgs::order is the host's). quantized_stats() returns the statistics.
void encode_quantized(const EncodeArgs& args, Stream stream);
// Codes of rows [first, first + rows), of which `copy` is a copy, with their columns in the
// weight's order (quant/order_codes.h), which is there already.
void order_columns(const Weight& to, const std::byte* copy, int64_t first, int64_t rows,
                   Stream stream);

}  // namespace sluice::cuda
