// Quantization in groups of columns while rows are loaded: from floats to grouped codes
// (quant/format.h), by the rules of quant/group_codes.h.
#pragma once

#include "quant/encode.h"

namespace sluice {

// Returns whether the source has floats that become grouped codes.
bool makes_groups(const EncodeArgs& args);

// The contract, as check()s. The source's columns are whole groups and runs, or end with the row.
// ScaleGroup::row: args.row_scales, or all columns of the row.
void check_groups(const EncodeArgs& args);

// Tables of a format that a scheme makes, as its plane has them; null: it has none.
const float* scheme_tables(const WeightFormat& format);

// Writes codes and scales of the source's rows, and of those that fill up the last panel, whose
// codes and scales are 0; with column 0 outer scales, and with row 0 of it tables.
EncodeStats encode_groups(const EncodeArgs& args);

}  // namespace sluice
