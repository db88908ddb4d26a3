// Checkpoints that GPTQ has quantized: quantization_config in config.json, and which tensors a
// linear layer is made of. quant/gptq.h has the bytes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "src/base/json.h"
#include "src/plan/read_plan.h"

namespace sluice {

struct GptqForm {
  int bits = 4;
  int64_t group_size = -1;  // inputs that share a scale; -1: all
  bool desc_act = false;    // g_idx says which inputs are a group
};
struct GptqConfig : GptqForm {
  int zero_base = 1;  // added to stored zeros
  // Forms of single modules ("dynamic"): shapes of tensors tell which module has which form, as
  // names tell which modules are not quantized.
  std::vector<GptqForm> others = {};
};
// nullopt where config.json names another method or none. Error(refused) for what is not supported.
std::optional<GptqConfig> gptq_config(const Json& config);

// The tensor of the codes of a matrix.
std::string gptq_codes_name(std::string_view weight);

// Finds out from the zeros whether they are stored less 1 (gptq) or not (gptq_v2). Symmetric
// quantization has its zeros in the middle, so they tell. Some files name the other method: then
// the zeros count, with a warning, and `config` gets their name. Looks at some layers only, and at
// each one's first zeros.
void settle_gptq_zeros(Json& config, const io::CheckpointIndex& index);

// Finds the tensors of pieces that are stored as GPTQ codes.
class GptqBinder {
 public:
  GptqBinder(const GptqConfig& config, const io::CheckpointIndex& index)
      : config_(config), index_(index) {}

  // The codes of a piece, or null where the checkpoint has its weight itself, or nothing.
  const io::StoredTensor* find(const Piece& piece) const;
  // The tensors of the matrix whose codes find() has found for a piece, which is all of its
  // `outputs`, or some of them; null, with its faults, where they do not fit.
  std::shared_ptr<const GptqSource> add(const Piece& piece, int64_t outputs,
                                        std::vector<std::string>& faults);
  // Reads the small tensors (g_idx) of the pieces taken in. Error(refused).
  void finish();
  bool claims(const std::string& tensor) const { return claimed_.contains(tensor); }

 private:
  const io::StoredTensor* tensor(const std::string& name, const Shape& shape,
                                 std::initializer_list<DType> types,
                                 std::vector<std::string>& faults);
  const GptqForm& form_of(const std::string& stem, int64_t inputs) const;

  GptqConfig config_;
  const io::CheckpointIndex& index_;
  std::unordered_set<std::string> claimed_;
  std::vector<std::pair<std::shared_ptr<GptqSource>, const io::StoredTensor*>> to_order_;
};

// Error(refused) where a rank's part ends within a group.
void check_gptq_cut(const TensorPlan& tensor, const Piece& piece);
// The rows of the file that a rank needs, of a tensor whose rows are inputs.
RowsInFile gptq_rows(const TensorPlan& tensor, const Piece& piece);

}  // namespace sluice
