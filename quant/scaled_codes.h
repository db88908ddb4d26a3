// E4M3 codes that a checkpoint has, with a scale for a row, for 128 x 128 elements, or for all; and
// such scales of blocks (quant/blocks.h).
// Codes and scales are tensors of their own, whose rows are outputs; memory has the same codes, and
// scales as online quantization makes them (quant/format.h).
#pragma once

#include "quant/encode.h"

namespace sluice {

// Returns whether the source is one of these.
bool has_scaled_codes(const EncodeArgs& args);

// Encodes rows of one of the tensors into args.plane.
//   codes   args.stored is f8_e4m3: args.rows source rows, in any runs, of to.cols columns
//   scales  args.stored is f32, bf16, f16 or f8_e8m0: the scales of args.rows rows of the weight,
//           which are args.output(0), ... counted from the first output of the first source row.
//           Each source row has the scales of args.sharing outputs, and of args.source_cols inputs,
//           of which column 0 of the weight is input args.first_col.
// The packed layout takes whole panels; rows that fill up the last one get codes 0 and scale 1.
void encode_scaled_codes(const EncodeArgs& args);
// Counts codes, NaN codes, and scales that are not finite.
EncodeStats scaled_code_stats(const EncodeArgs& args);

// Bytes of a source row of scales that the weight's columns begin behind, and those in one of its
// elements.
int64_t first_scale(const EncodeArgs& args);

}  // namespace sluice
