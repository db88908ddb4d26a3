// The rows of a piece in a file, for loads and for sweeps.
#pragma once

#include <optional>

#include "src/plan/read_plan.h"

namespace sluice {

// The rows of one of a piece's tensors in the checkpoint. Its group, its matrix and its plane are
// known.
RowsInFile rows_in_file(const Param& param, const TensorPlan& tensor);
// The same of a matrix of that format in the spill cache.
RowsInFile rows_in_spill(const Param& param, const TensorPlan& tensor, const WeightFormat& format);

// The rows from which a sweep reads a tensor: its own, or, where runs are whole row groups, one of
// its runs, by the rows of its stored matrix.
RowsInFile rows_in_sweep(const ReadPlan& plan, const TensorPlan& tensor);

// The bytes of each of a tensor's rows that a rank has.
struct RowShare {
  uint64_t begin = 0;
  uint64_t bytes = 0;
};
// None where ranks have other rows, or not whole elements in one run: `rank` reads for itself.
std::optional<RowShare> row_share(const Param& param, const TensorPlan& tensor, Rank rank);

}  // namespace sluice
