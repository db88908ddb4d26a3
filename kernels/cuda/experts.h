// Experts of a layer by choices that only the device knows (kernels.h: experts): parts of it, by
// the number of rows.
//
// A *pair* is a row and one of its experts. Of few rows the choices are the list of pairs as they
// are. Of many, pairs are sorted by expert, and those of one expert, by rising rows, are cut into
// tiles.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/gemv.h"
#include "kernels/cuda/ops.h"

namespace sluice::cuda {

inline constexpr int64_t kMostTopK = 64;  // of a row

// Returns whether the kernels have the formats: codes that bf16 holds, in bf16 compute, and both
// matrices of 4-bit codes in groups (E2M1, integers) in the order of columns. float32 and float16
// weights, and others in groups, are computed by linear(), expert after expert.
bool experts_fit(const ExpertWeights& w, int64_t top_k, Compute compute);

struct ExpertNeeds {
  int64_t rows = 0, top_k = 0, count = 0, hidden = 0, width = 0;
};
uint64_t experts_workspace_bytes(const ExpertNeeds& needs);

void experts(Tensor x, const ExpertWeights& w, int64_t top_k, const ExpertChoices& choices,
             const SharedExpert& shared, std::span<std::byte> workspace, Tensor y, Stream stream);

// ---- parts

// Rows of x, rounded, or as they are for kernels that round them.
struct ExpertInput {
  Bf16Rows rounded;
  Tensor unrounded = {};  // in the place of `rounded`
};
// The place for an expert's activated columns: rounded, with zeros behind them, or as they are.
struct ExpertInner {
  Bf16Rows rounded;
  Tensor unrounded = {};
};

// At most kFewRows rows: pair p is row p / top_k and its choice of that number.
bool experts_few_round(Tensor x);  // whether `up` can take it unrounded
void experts_few_up(const ExpertInput& x, const ExpertWeights& w, int64_t top_k,
                    const ExpertChoices& choices, int64_t rows, const ExpertInner& inner,
                    Stream stream);
void experts_few_down(const Bf16Rows& inner, const ExpertWeights& w, int64_t top_k,
                      const ExpertChoices& choices, const SharedExpert& shared, Tensor y,
                      Stream stream);

// The same of 4-bit codes in groups: each of x and of `inner` is rounded, with columns of 128.
void experts_grouped_up(const Bf16Rows& x, const ExpertWeights& w, int64_t top_k,
                        const ExpertChoices& choices, const Bf16Rows& inner, Stream stream);
void experts_grouped_down(const Bf16Rows& inner, const ExpertWeights& w, int64_t top_k,
                          const ExpertChoices& choices, const SharedExpert& shared, Tensor y,
                          Stream stream);

// Some sorted pairs of one expert.
struct ExpertTile {
  int32_t expert = 0;  // -1: there is none
  int32_t first = 0, count = 0;
  int32_t unused = 0;
};
struct ExpertLists {
  int32_t* rows = nullptr;    // [pairs]: of each sorted pair
  int32_t* places = nullptr;  // [rows][top_k]: where a row's pairs are among the sorted ones
  ExpertTile* tiles = nullptr;
  int64_t most_tiles = 0;
  int64_t tile_rows = 0;
};
// The height of tiles for so many pairs: few of an expert leave most of a high one empty.
int64_t expert_tile_rows(int64_t pairs, int64_t count);
int64_t most_expert_tiles(int64_t pairs, int64_t count, int64_t tile_rows);
// top_k <= kMostTopK.
void make_expert_lists(const int32_t* experts, int64_t rows, int64_t top_k, int64_t count,
                       const ExpertLists& lists, Stream stream);

// Products of tiles by tensor cores. x are rows of the step.
void experts_many_up(const Bf16Rows& x, const ExpertWeights& w, const ExpertLists& lists,
                     const ExpertInner& inner, Stream stream);
// out [pairs, cols] = columns [first, first + cols) of the pairs' outputs; `first` begins a panel.
void experts_many_down(const Bf16Rows& inner, const ExpertWeights& w, const ExpertLists& lists,
                       int64_t first, Tensor out, Stream stream);
// y = the sums of the same columns.
void add_experts(Tensor out, const ExpertLists& lists, int64_t top_k, const float* weights,
                 const SharedExpert& shared, Tensor y, Stream stream);

// Depth of the tiles of products of many rows: columns of their inputs are whole ones.
inline constexpr int64_t kExpertDepth = 64;

}  // namespace sluice::cuda
