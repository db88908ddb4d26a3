// The contents of a GGUF file that is made of a checkpoint: its metadata, and what its tensors are
// made of. Two models say so: the checkpoint's, and the one that a reader makes of the file. They
// have the same parameters, of pieces of other tensors.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/gguf_metadata.h"
#include "src/models/gguf/gguf_export.h"
#include "src/models/registry.h"
#include "src/plan/read_plan.h"
#include "src/plan/source_differences.h"

namespace sluice {

// The types that matrices get, and what the file calls them together.
struct GgufScheme {
  std::string_view name;
  uint32_t file_type = 0;  // general.file_type
  DType linear = DType::q8_0;
  DType experts = DType::q8_0;
  DType embedding = DType::q8_0;
  DType head = DType::q8_0;    // also an embedding that is the head
  DType better = DType::q8_0;  // values and down projections of some layers
};
std::span<const GgufScheme> gguf_schemes();
// Error(usage) that lists them.
const GgufScheme& find_gguf_scheme(std::string_view name);

// Elements of a stored vector, or of one of a stack.
struct GgufElements {
  const io::StoredTensor* stored = nullptr;
  Piece piece;
  SourceOrder order = {};  // of the piece's
};

// Rows of a tensor of the plan. Turned: each so many of them are a matrix, whose columns become
// rows.
struct GgufRows {
  uint32_t tensor = 0;
  int64_t first = 0;
  int64_t rows = 0;
  SourceOrder order = {};

  int64_t end() const { return first + rows; }
};

struct GgufTensor {
  std::string name;
  DType type = DType::f32;
  Shape shape;
  // A matrix, or a stack of them: these rows one after another, or all of a tensor.
  std::vector<GgufRows> rows = {};
  const io::StoredTensor* whole = nullptr;
  // A vector: these elements, or numbers.
  std::vector<GgufElements> elements = {};
  std::vector<float> numbers = {};
  float offset = 0;          // added to each
  bool is_rate = false;      // -exp of each
  SourceOrder columns = {};  // of a matrix

  bool is_vector() const { return rows.empty() && whole == nullptr; }
  io::TensorToWrite written() const { return {name, type, shape}; }
};

struct GgufModel {
  ReadPlan plan = {};  // of the checkpoint
  io::GgufMetadata metadata = {};
  std::vector<GgufTensor> tensors = {};  // numbers first
};

// A checkpoint. All outlive the model that is made of it.
struct GgufOrigin {
  Model& model;
  const io::CheckpointIndex& index;
  const TokenizerFiles* tokenizer = nullptr;  // null: there is none
  ChatFiles chat;
  std::string name;  // general.name
};

// `scheme`: null: matrices have the type `numbers`, or stay as they are stored, or become BF16
// where they are quantized. `trial`: a file that is written, without the weights, to see that it is
// read as the same model, and removed. Error(refused) for models that GGUF cannot have.
GgufModel gguf_model(const GgufOrigin& origin, const GgufScheme* scheme,
                     std::optional<DType> numbers, const std::filesystem::path& trial);

}  // namespace sluice
