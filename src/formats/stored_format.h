// The ways in which checkpoints store matrices. A format says which tensors a matrix is made of,
// what the weight's format in memory is, and how the tensors' rows become its planes. Each format
// is a file of this directory, and list.h has them all. Plans and loads know planes and rows, and
// no format.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "io/checkpoint/index.h"
#include "quant/encode.h"
#include "src/base/json.h"
#include "src/nn/param.h"

namespace sluice {

// One tensor of a stored matrix, and the plane that it fills.
struct StoredPlane {
  Plane plane = Plane::codes;
  const io::StoredTensor* tensor = nullptr;  // null: the tensor with the matrix's name
  // Output-major: outputs that share a row of the tensor; 0: all do.
  int64_t row_outputs = 1;
  // Input-major: a row has a part of every output, and `run_rows` of them, which are encoded
  // together, have `run_inputs` inputs; 0: it is output-major.
  int64_t run_inputs = 0;
  int64_t run_rows = 1;
  CodeWords words = {};  // of codes and zeros
  // Output-major: so many neighbouring elements of the matrix have one number, whatever their rows;
  // 0: rows have their own. `row_bytes` are those of row_outputs outputs; 0: all are alike.
  int64_t flat = 0;
  uint64_t row_bytes = 0;
  double factor = 1;     // of scales that become float32, and of an outer one of all
  bool inverse = false;  // of scales that become float32: 1 / its numbers
  int64_t group = 0;     // inputs that share a number; 0: as many as in memory
  // Output-major, with row_outputs 0: numbers of a group lie side by side, one for each of so many
  // outputs; 0: those of an output do.
  int64_t across = 0;
  // Output-major codes whose bytes several outputs share: so many have a row each, and as many
  // later ones other bits of the same rows; 0: each has a row.
  int64_t slice_outputs = 0;

  bool input_major() const { return run_inputs > 0; }
  // The row of the tensor that has an output.
  int64_t row_of(int64_t output) const {
    if (slice_outputs > 0) return output % slice_outputs;
    return row_outputs > 0 ? output / row_outputs : 0;
  }
};

// A matrix, or vector, of a checkpoint; its pieces share this.
struct StoredMatrix {
  std::vector<StoredPlane> planes;   // the codes first
  std::optional<WeightFormat> kept;  // in memory, but for the layout; none: a scheme chooses it
  int64_t outputs = 0;               // of all pieces together
  int64_t whole_inputs = 1;          // a rank's inputs are a multiple of these
  // The group of each input, where a tensor says it: read with the headers.
  const io::StoredTensor* groups = nullptr;
  // Inputs sorted by group, where they are not (`kept->ordered`): the input at each place.
  std::vector<int32_t> order = {};
  // Tables of its own (quant/format.h), and tensors that say them: read with the headers.
  std::vector<float> tables = {};
  std::vector<const io::StoredTensor*> small = {};

  // Returns whether numbers of all outputs come with any rows of codes.
  bool reads_plane_for_each_tile() const {
    return std::ranges::any_of(planes, [](const StoredPlane& p) { return p.across > 0; });
  }
};

// The matrix that pieces ask for.
struct WantedMatrix {
  const Piece& piece;           // one of them
  int64_t outputs = 0;          // of all
  const Shape& shape;           // of its tensor, where that has the elements themselves
  std::string_view asked_from;  // the name of the config, for messages
  // All parts of it, over all pieces and for this rank, begin and end at multiples of so many
  // outputs and inputs; inputs: 0 where all have all of them.
  int64_t output_step = kScaleBlock;
  int64_t input_step = 0;
};

// Finds the tensors of matrices by their names, and notes what does not fit.
class MatrixTensors {
 public:
  MatrixTensors(const io::CheckpointIndex& index, std::unordered_set<std::string>& claimed,
                std::vector<std::string>& faults)
      : index_(index), claimed_(claimed), faults_(faults) {}

  // The tensor of that name, which the matrix claims. Null, with a fault, where it is missing or
  // has another shape or a type that `format` has not.
  const io::StoredTensor* get(const std::string& name, const Shape& shape,
                              std::initializer_list<DType> types, std::string_view format);
  const io::StoredTensor* find(const std::string& name) const { return index_.find(name); }
  void claim(const std::string& name) { claimed_.insert(name); }
  void fault(std::string text) { faults_.push_back(std::move(text)); }

 private:
  const io::CheckpointIndex& index_;
  std::unordered_set<std::string>& claimed_;
  std::vector<std::string>& faults_;
};

// Returns whether a tensor has the shape of the matrix's elements; else notes it as a fault.
bool fits_shape(const io::StoredTensor& stored, const WantedMatrix& wanted, MatrixTensors& tensors);

class StoredFormat {
 public:
  virtual ~StoredFormat() = default;
  // The name of the tensor with the codes of `weight`.
  virtual std::string codes_name(const std::string& weight) const { return weight; }
  // Returns whether the piece is stored in this format, if `codes` has its codes.
  virtual bool claims(const Piece& piece, const io::StoredTensor& codes) const = 0;
  // The matrix whose codes `codes` has. Null, with its faults in `tensors`, where something does
  // not fit.
  virtual std::shared_ptr<StoredMatrix> describe(const io::StoredTensor& codes,
                                                 const WantedMatrix& wanted,
                                                 MatrixTensors& tensors) const = 0;
  // Returns whether `groups`, those of its inputs, say in which groups these are. Error(refused).
  virtual bool has_order(const StoredMatrix&, std::span<const int32_t>) const { return true; }
  // Takes the bytes of `matrix.small`. Error(refused) for what is not supported.
  virtual void take_small(StoredMatrix&, std::span<const std::string>) const {}
  // The outputs that a tensor of input-major codes has; 0: it has not its dimensions.
  virtual int64_t outputs_across(const io::StoredTensor&) const { return 0; }
  virtual bool is_input_major() const { return false; }  // streamed from the spill cache
  // StoredPlane::slice_outputs of the piece's codes: each piece has outputs of one slice.
  virtual int64_t slice_outputs(const Piece&, const io::StoredTensor&) const { return 0; }
  // Returns whether a tensor that no part of the model has changes nothing.
  virtual bool ignores(const io::StoredTensor&) const { return false; }
};

// An entry of the list of formats.
struct FormatKind {
  // Returns whether `quantization_config` of config.json names it; null: no config does.
  bool (*is_named)(const JsonFields& quantization) = nullptr;
  // The format as the checkpoint has it; null where nothing of it is there. Error(refused) for what
  // is not supported.
  std::unique_ptr<StoredFormat> (*open)(const Json& config, const io::CheckpointIndex& index);
  // Corrects the config by what the tensors show.
  void (*settle)(Json& config, const io::CheckpointIndex& index) = nullptr;
};

// The name of a linear layer, of that of its weight.
std::string stem_of(std::string_view weight);

// The fields of `quantization_config`; nullopt where config.json has none.
std::optional<JsonFields> quantization_fields(const Json& config);

}  // namespace sluice
