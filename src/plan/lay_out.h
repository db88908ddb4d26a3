// The first stage of compile(): chooses each parameter's format, and finds its tensors' rows.
#pragma once

#include "src/plan/read_plan.h"

namespace sluice {

// Units, parameters and tensors, all on the device, without reads. Input-major matrices are read
// from `copies`, which outlive the plan; null: from the checkpoint. Throws as compile() does.
ReadPlan lay_out(Model& model, const io::CheckpointIndex& index, const QuantizeRequest& quantize,
                 const RowCopyTensors* copies = nullptr);
// Gives the parameters of a plan their tiers and their storage. Error(no_fit) for what cannot be
// streamed.
void set_placement(ReadPlan& plan, const Placement& placement);

}  // namespace sluice
