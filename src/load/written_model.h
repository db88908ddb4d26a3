// The contents of a standard checkpoint that is made of another one: which of its matrices are
// quantized, into which forms, and the quantization_config that says so.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/formats/written_format.h"
#include "src/load/checkpoint_writer.h"
#include "src/models/registry.h"
#include "src/plan/hub_form.h"
#include "src/plan/quantize.h"

namespace sluice {

struct WrittenModel {
  std::unique_ptr<HubForm> form;      // of tensors that are made
  std::deque<WrittenFormat> formats;  // of the tensors
  std::vector<TensorToStore> tensors;
  Json quantization;  // quantization_config; null: there is none
};

// All tensors of `index`, which outlives it, as they are; or numbers as BF16.
WrittenModel converted_model(const io::CheckpointIndex& index, bool to_bf16);

// A model that is read; all outlive what is written of it. `is_hub`: its names and shapes are the
// hub's.
struct HubSource {
  const ModelSource& source;
  const Model& model;
  const ReadPlan& plan;
  const io::CheckpointIndex& index;
  bool is_hub = false;
};
// Types of matrices: a number's, those that are stored (nullopt); and of those that the request
// quantizes.
struct WrittenNumbers {
  std::optional<DType> dtype = {};
  std::optional<QuantizeRequest> request = {};
  WrittenMethod method = WrittenMethod::compressed_tensors;
};
// All tensors of the model, as the hub has them. Error(refused) for models and matrices that have
// no such form, Error(usage) for schemes that have none.
WrittenModel made_model(const HubSource& from, const WrittenNumbers& numbers);

// The text of config.json with that quantization_config, in place of one that is null; with another
// dtype, where it says one; or without a quantization_config.
std::string with_quantization(std::string config, const Json& quantization);
std::string with_dtype(std::string config, DType dtype);
std::string without_quantization(const std::string& config);

}  // namespace sluice
