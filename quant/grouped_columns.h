// Grouped codes (quant/format.h) of matrices that are stored as [inputs, outputs], in tensors of
// their own for codes, zeros and scales: a row has a part of every output.
//   codes   words of 32 bits, [inputs * bits / 32, outputs]: down each column one little-endian
//           stream of codes; or [inputs, outputs / 8] of four bits, along each row
//   zeros   words of 32 bits, [groups, outputs * bits / 32]: along each row a stream of zeros
// CodeWords (quant/encode.h) says which, and the order along rows.
//   scales  f16, bf16 or f32, [groups, outputs]
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "quant/encode.h"
#include "quant/pack_codes.h"

namespace sluice {

// Encodes source rows of one of the tensors into args.plane; args.stored is u32, f16, bf16 or f32.
// Rows of codes begin at input args.first_col, a multiple of 32, and are whole runs of 32 inputs.
// Columns stay in the order of inputs (quant/order_codes.h gives them another). Those of the source
// are rows of the weight from args.first_row on: args.outputs of them, which
// are args.output(0), .... Rows of scales and zeros are groups, from args.first_group on. `pack`
// packs the codes.
void encode_grouped_columns(const EncodeArgs& args, PackCodes* pack);
// Counts infinite and NaN scales, and codes.
EncodeStats grouped_column_stats(const EncodeArgs& args);

// The value of all codes of a stream of words; nullopt: they differ, or there are none.
std::optional<int> one_code(std::span<const uint32_t> words, int bits);

// Inputs sorted by group, in order within a group: order[k] is the input at place k. Empty where
// they are sorted already. Error(refused), with `name`, for groups that are not those of
// `group_cols` inputs each.
std::vector<int32_t> order_by_group(std::span<const int32_t> groups, int64_t group_cols,
                                    std::string_view name);

}  // namespace sluice
