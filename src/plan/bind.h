// Finds the checkpoint tensor that fills each piece: the first step of compile(). Every fault is
// found before any weight is read, and reported together.
#pragma once

#include <string>
#include <vector>

#include "src/plan/read_plan.h"

namespace sluice {

struct Binding {
  std::vector<TensorPlan> tensors;  // in the order of the module tree; param indexes `params`
  std::vector<Param*> params;
  std::vector<uint32_t> param_units;
  std::vector<std::string> ignored;
  std::vector<const io::StoredTensor*> kv_scales;  // as found by read_kv_scales
};

// A tensor that a model needs, as its pieces give it together.
struct WantedTensor {
  std::string name;
  Shape shape;
};
std::vector<WantedTensor> wanted_tensors(Model& model);

// Returns whether a piece is transposed as `index` has its tensor: where that is stored with its
// dimensions exchanged (io::StoredTensor::column_major), `view.transposed` of the family is
// inverted. bind_tensors does so in the piece itself; who looks at views before asks here.
bool lies_transposed(const Piece& piece, const io::CheckpointIndex& index);

// Throws Error(refused) as compile() does.
Binding bind_tensors(Model& model, const io::CheckpointIndex& index);

// Returns whether the checkpoint may store matrices of the model as [inputs, outputs].
bool may_be_input_major(const Model& model, const io::CheckpointIndex& index);

// Throws Error(refused): `what`, and then each fault.
[[noreturn]] void refuse(std::string_view what, const std::vector<std::string>& faults);

}  // namespace sluice
