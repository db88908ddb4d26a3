// The contents of a standard checkpoint that is made of another one: which of its matrices are
// quantized, into which forms, and the quantization_config that says so.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "src/formats/written_format.h"
#include "src/load/checkpoint_writer.h"
#include "src/models/registry.h"
#include "src/plan/quantize.h"

namespace sluice {

struct WrittenModel {
  std::deque<WrittenFormat> formats;  // of the tensors
  std::vector<TensorToStore> tensors;
  Json quantization;  // quantization_config; null: there is none
};

// All tensors of `index`, which outlives it, as they are; or numbers as BF16.
WrittenModel converted_model(const io::CheckpointIndex& index, bool to_bf16);

// All tensors of `index`; matrices as the request says. Error(refused) for models that are
// quantized already, and for matrices that have no form of the method; Error(usage) for schemes
// that have none.
WrittenModel quantized_model(Model& model, const io::CheckpointIndex& index,
                             const QuantizeRequest& request, WrittenMethod method);

// The text of config.json with that quantization_config, in place of one that is null, or with BF16
// as its dtype.
std::string with_quantization(std::string config, const Json& quantization);
std::string with_bf16(std::string config);

}  // namespace sluice
