// The tensors of a GGUF file, as rows and elements of a checkpoint's.
#pragma once

#include <vector>

#include "src/load/gguf_model.h"

namespace sluice {

// A config as that of a model whose weights are as in such a file; without its modules.
Model read_in_gguf(const GgufArchitecture& architecture, Json config);

// The model that a reader makes of such a file, for the config of `of`: it has the same parameters,
// of pieces of the file's tensors. Error(refused) where it cannot be made.
Model model_in_gguf(const GgufArchitecture& architecture, const Model& of);

// `plan` is that of `of`, and `in_gguf` of model_in_gguf(). Types are those of stored matrices,
// which none says otherwise. Error(refused) for tensors that have no name, or no form.
std::vector<GgufTensor> gguf_tensors(const GgufArchitecture& architecture, Model& of,
                                     Model& in_gguf, const ReadPlan& plan,
                                     const io::CheckpointIndex& index);

}  // namespace sluice
