// The first stage of compile(): chooses each parameter's format, and finds its tensors' rows.
#pragma once

#include "src/plan/read_plan.h"

namespace sluice {

// Units, parameters and tensors, all on the device, without reads. `origin`: of input-major
// matrices. Throws as compile() does.
ReadPlan lay_out(Model& model, const io::CheckpointIndex& index, const QuantizeRequest& quantize,
                 Origin origin = Origin::checkpoint);
// The same for rows [first, first + rows) of one matrix of a plan, read from the checkpoint: whole
// groups of row_step() rows, or all. `part` becomes its only parameter, and outlives it.
ReadPlan lay_out_part(const ReadPlan& plan, uint32_t tensor, int64_t first, int64_t rows,
                      Param& part);
// A plan of one stored matrix of plain elements by itself, as a linear layer in plain rows. The
// matrices of a stack lie below one another. `param` becomes its only parameter, and outlives it.
ReadPlan lay_out_matrix(const io::StoredTensor& stored, const QuantizeRequest& quantize,
                        Param& param);
// The outputs and inputs of such a matrix.
Shape matrix_shape(const io::StoredTensor& stored);
int64_t row_step(const ReadPlan& plan, uint32_t tensor);
// Gives the parameters of a plan their tiers and their storage. Error(no_fit) for what cannot be
// streamed.
void set_placement(ReadPlan& plan, const Placement& placement);

}  // namespace sluice
