// A model in the form of the Hugging Face hub: the tensors that transformers knows, and the rows of
// a plan's matrices that each is made of. A source may have rows in another order, tensors that are
// parts or stacks of the hub's, and other values (SourceFacts); here they are undone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "src/plan/read_plan.h"
#include "src/plan/source_differences.h"

namespace sluice {

// Rows of a hub's matrix that are rows of one of the plan's, at equal steps.
struct RowRun {
  int64_t output = 0;  // the first one
  int64_t rows = 0;
  uint32_t tensor = 0;  // of the plan
  int64_t first = 0;    // there
  int64_t step = 1;
  int64_t turned = 0;  // so many rows there have them as columns, from `column` on; 0: they do not
  int64_t column = 0;

  int64_t source_end() const { return turned > 0 ? first + turned : first + (rows - 1) * step + 1; }
};

// Rows, or elements of a vector, of one of the plan's tensors.
struct SourceRows {
  uint32_t tensor = 0;
  int64_t rows = 0;
};

// A piece of a hub's tensor: rows of the parameter that the source has, from `begin` on.
struct HubPart {
  const Param* param = nullptr;  // of the hub's model
  const Piece* piece = nullptr;  // there
  SourceOrder order = {};
  int64_t begin = 0;
  std::shared_ptr<const std::vector<SourceRows>> sources = {};  // of the whole parameter
};

// A tensor as the hub has it. Of a vector outputs are elements, and inputs 1.
struct HubTensor {
  std::string name;
  Shape shape;
  DType dtype = DType::bf16;  // that loses nothing of what is stored, or BF16 of codes
  int64_t matrices = 1;       // in a stack
  int64_t outputs = 0;        // of each
  int64_t inputs = 0;
  bool is_vector = false;
  bool is_transposed = false;  // matrices are [inputs, outputs]
  bool is_quantized = false;   // as the source stores it
  float added = 0;             // to the source's values
  bool is_log = false;         // it is the logarithm of the source's values, less their sign
  SourceOrder columns = {};
  std::vector<HubPart> parts = {};

  // The runs of a matrix, by outputs; rows that are in several pieces once.
  std::vector<RowRun> runs(int64_t matrix) const;
};

struct HubForm {
  Model model;  // as the hub has it
  std::vector<HubTensor> tensors;
};

// `source`, of which `model` and its `plan` are; `index`: its tensors. The names are those that
// `source` has where it is of the hub's form but for quantization (`is_hub`). Error(refused) for
// what has no such form.
HubForm hub_form(const ModelSource& source, const Model& model, const ReadPlan& plan,
                 const io::CheckpointIndex& index, bool is_hub);

}  // namespace sluice
