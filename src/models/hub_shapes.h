// The dimensions that tensors have on the Hugging Face hub where their number is another one than
// the model's own.
#pragma once

#include <string>
#include <vector>

#include "src/base/shape.h"
#include "src/models/registry.h"

namespace sluice {

// A tensor of each layer that has it.
struct HubShape {
  std::string name;  // "{}" stands for the layer
  Shape shape;
};
std::vector<HubShape> hub_shapes(const Model& model);
// Error(refused) for a model that the family's class in transformers does not have.
void refuse_without_class(const Model& model);

// Each in the file of its family.
std::vector<HubShape> dbrx_hub_shapes(const Model& model);
std::vector<HubShape> kimi_linear_hub_shapes(const Model& model);
void refuse_deepseek_ocr(const Model& model);

}  // namespace sluice
