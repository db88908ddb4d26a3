// GPTQ's stored form (AutoGPTQ's packing), into grouped codes (quant/format.h). A linear layer of
// [outputs, inputs] is
//   qweight  int32 [inputs * bits / 32, outputs]: down each column one little-endian stream of
//   codes qzeros   int32 [groups, outputs * bits / 32]: along each row a stream of zeros, less 1 in
//   the
//            first version of the format
//   scales   f16 or bf16 [groups, outputs]
//   g_idx    int32 [inputs]: the group of each input
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "quant/encode.h"

namespace sluice {

// The type of qweight's and qzeros' words.
DType gptq_type(int bits);
// 0 for another type.
int gptq_bits(DType stored);

// Encodes source rows of one of the first three tensors into args.plane; args.stored is gptq_type,
// f16 or bf16. Rows of qweight begin at input args.first_col, a multiple of 32, and are whole runs
// of 32 inputs; where args.places says that inputs change places, they are all of the tensor. Its
// columns, and those of the others, are rows of the weight from args.first_row on: args.outputs of
// them, which are args.output(0), .... Rows of scales and zeros are groups, from args.first_group
// on. With args.places args.order is written, too.
void encode_gptq(const EncodeArgs& args);
// Counts infinite and NaN scales, and codes.
EncodeStats gptq_stats(const EncodeArgs& args);

// The value of all codes of a stream of words; nullopt: they differ, or there are none.
std::optional<int> gptq_one_code(std::span<const uint32_t> words, int bits);

// Inputs sorted by group, in order within a group: order[k] is the input at place k. Empty where
// they are sorted already. Error(refused), with `name`, for groups that are not those of
// `group_cols` inputs each.
std::vector<int32_t> gptq_order(std::span<const int32_t> g_idx, int64_t group_cols,
                                std::string_view name);

}  // namespace sluice
