// Grouped codes (quant/format.h) of matrices that are stored as [outputs, inputs], each plane in a
// tensor of its own:
//   codes   rows of bytes that have 1 to 6 or 8 bits of each input (CodeWords says in which order);
//           or a byte of each input, which several outputs share
//   scales  rows of numbers, or of codes, of groups
//   outers  float32: one for all, or for each args.flat elements
//   zeros   rows of bytes with a sign, of words of 32 bits that have args.sharing outputs each,
//           or of floats (zero_type)
// Planes of which args.flat elements of the whole matrix share a number have no rows.
#pragma once

#include "quant/encode.h"
#include "quant/pack_codes.h"

namespace sluice {

// Encodes args.rows rows of one of the tensors into args.plane. Rows of codes are those of
// args.row(), and begin with the weight's first column. Rows of other planes are args.output(0),
// ..., counted from the first output of the source, of which args.sharing have a row together; they
// begin with input 0 of args.source_cols, and the weight with input args.first_col. Order and
// tables are written with row 0 of the codes, which `pack` packs.
void encode_row_codes(const EncodeArgs& args, PackCodes* pack);
// Counts codes, NaN codes, and scales that are not finite.
EncodeStats row_code_stats(const EncodeArgs& args);
// Bytes from a word of zeros to that of the outputs behind it: where zeros are in two words, a
// source row has as many rows of words as have whole ones.
int64_t zeros_apart(const EncodeArgs& args);
// Bytes of a row of codes.
int64_t code_row_bytes(const EncodeArgs& args);
// Bytes from the begin of the source to its end.
int64_t row_code_bytes(const EncodeArgs& args);

}  // namespace sluice
