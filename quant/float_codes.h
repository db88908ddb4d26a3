// Codes of four-bit floats with power-of-two scales, as checkpoints have them by rows:
//   codes   bytes [outputs, inputs / 2], the lower nibble first
//   scales  bytes [outputs, inputs / 32]: E8M0
#pragma once

#include "quant/encode.h"

namespace sluice {

// Encodes args.rows rows of one of the two into args.plane of a weight whose table is e2m1. Rows of
// codes are those of args.row(), and begin with the weight's first column; rows of scales are
// args.output(0), ..., and begin with input 0, where the weight begins with args.first_col.
void encode_float_codes(const EncodeArgs& args);
// Counts codes, and NaN scales.
EncodeStats float_code_stats(const EncodeArgs& args);

}  // namespace sluice
