// Where in a file the rows of a piece are, for loads and for sweeps.
#pragma once

#include "src/plan/read_plan.h"

namespace sluice {

// The rows of one of a piece's tensors. Its group, its matrix and its plane are known.
RowsInFile rows_in_file(const Param& param, const TensorPlan& tensor);

// The rows from which a sweep reads a tensor: its own, or, where runs are whole row groups, one of
// its runs, by the rows of its stored matrix.
RowsInFile rows_in_sweep(const ReadPlan& plan, const TensorPlan& tensor);

}  // namespace sluice
