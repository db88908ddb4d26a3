// Blocks of GGUF (quant/blocks.h) into a weight's storage: they are copied, and interleaved in the
// packed layout.
#pragma once

#include <array>

#include "quant/encode.h"

namespace sluice {

// The contract of such a source, as check()s.
void check_blocks(const EncodeArgs& args);

// Rows of the source from `first` on that are a panel; null behind the last.
std::array<const uint8_t*, kPanelRows> panel_of_blocks(const EncodeArgs& args, int64_t first);

// Columns of a row that are not finite, as a scale of their block is not.
int64_t not_finite_cols(DType type, const uint8_t* row, int64_t blocks);

void encode_blocks(const EncodeArgs& args);
EncodeStats block_stats(const EncodeArgs& args);

}  // namespace sluice
