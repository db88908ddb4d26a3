// The layers that decoders are made of. Each declares its parameters under the checkpoint's names
// when it is built, and computes with them once they are resident.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "src/nn/context.h"
#include "src/nn/module.h"

namespace sluice {

// One part of a (possibly fused) linear layer: "q_proj" with 4096 outputs.
struct LinearPart {
  std::string source;  // path in the checkpoint, without ".weight"
  int64_t outputs = 0;
  Shard shard = Shard::whole();
  View view = {};     // of the weight; the bias has the same outputs of a vector
  bool bare = false;  // the weight is `source`, and the bias has "_bias" behind it
};

class Norm;

// Rows that a layer reads: as they are, or what `norm` makes of them, for which `normed` has room.
struct RowsIn {
  RowsIn(Tensor x) : rows(x) {}
  RowsIn(Tensor x, const Norm* by, Tensor room) : rows(x), norm(by), normed(room) {}
  // Computes the norm, where there is one.
  Tensor read(const Kernels& kernels) const;

  Tensor rows;
  const Norm* norm = nullptr;
  Tensor normed;
};

// The place of what a layer makes, in which it is stored, or to which it is added.
struct RowsOut {
  RowsOut(Tensor to, bool is_added = false) : y(to), adds(is_added) {}

  Tensor y;
  bool adds;
};

// y = x w^T + b. The outputs of several parts that read the same input lie side by side in y, each
// begun on a panel's border (part_begin). They are one matrix with one product if the plan keeps
// all in one format, else one each. If each rank has some of the inputs, y is added up over the
// ranks, and the bias is added by the first.
class Linear : public Module {
 public:
  // Every part has `inputs` columns, cut by `input_shard` (row-parallel) or each by its own shard
  // (column-parallel).
  Linear(std::string path, const std::vector<LinearPart>& parts, int64_t inputs, bool bias,
         Rank rank, ParamRole role = ParamRole::linear);

  int64_t outputs() const { return weight_->rows; }  // of y, padding included
  int64_t part_begin(size_t part) const { return parts_[part].begin; }
  int64_t part_size(size_t part) const { return parts_[part].size; }
  // The columns of y that hold one part.
  Tensor part(Tensor y, size_t index) const {
    return y.columns(part_begin(index), part_size(index));
  }

  void forward(const Context& context, const RowsIn& input, const RowsOut& output) const;
  // The first `width` columns of y = activation(them) * those of part 1, and other columns
  // undefined, where that is one pass; if not, returns false, and nothing is done.
  bool forward_activated(const Context& context, const RowsIn& input, int64_t width,
                         const ActivationParams& activation, Tensor y) const;
  // Returns whether a product of so many rows can be added to what y has.
  bool adds(const Context& context, int64_t rows) const;

  const Param& weight() const { return *weight_; }
  const Param* bias() const { return bias_; }  // null: none
  // Says that it is a part of a router's expert, which a share of the tokens uses.
  void set_expert(int64_t number, double share);

 private:
  void multiply_parts(const Context& context, Tensor x, const float* bias, Tensor y) const;
  bool fuses(const Context& context, int64_t rows, const Fusion& fusion) const;

  struct Columns {
    int64_t begin = 0, size = 0;
  };

  Param* weight_;
  Param* bias_ = nullptr;
  std::vector<Columns> parts_;  // of y; a checkpoint may have a part in several pieces
  bool adds_up_;
};

// The tensors that a norm has in the checkpoint.
struct NormTensors {
  bool weight = true;
  bool bias = false;
};

class Norm : public Module {
 public:
  // `params` without its bias. `dimension`: of what is normed, where ranks have parts of it.
  Norm(std::string path, int64_t size, const NormParams& params, NormTensors tensors,
       const Dimension& dimension = {}, Rank rank = {});
  // A norm with its own weight for each head; all of them are `weights`, and stay as they are
  // stored.
  Norm(std::string path, int64_t head_size, const std::vector<PieceSpec>& weights,
       const NormParams& params, Rank rank);
  // x is `size` columns wide, or some times that (heads), each normed by itself.
  void forward(const Kernels& kernels, Tensor x, Tensor y) const;
  // x is a rank's part of rows that are normed whole. `room` is a number for each row.
  void forward_part(const Context& context, Tensor x, Tensor room, Tensor y) const;
  // residual += x; y = norm(residual)
  void forward_add(const Kernels& kernels, Tensor residual, Tensor x, Tensor y) const;
  // The norm of whole rows, for a layer that computes it; nullopt: of heads.
  std::optional<InputNorm> of_input() const;

 private:
  NormParams params() const;  // with the bias where it is now
  Weight weight() const;

  NormParams params_;
  int64_t cols_of_ranks_;     // columns of all ranks; shared ones count for each
  bool own_weights_ = false;  // of each head
  Param* weight_ = nullptr;
  Param* bias_ = nullptr;
};

// A table whose rows are looked up: of tokens, or of positions. A tied head multiplies with the
// same matrix, which is then stored packed.
class Embedding : public Module {
 public:
  // `source`: the checkpoint tensor that it is, without ".weight". `rows`: of which ranks have
  // parts, if `rank` is one of several. `stored`: rows of the tensor, if there are more of them, or
  // less, whose first then stands for those that lack; 0: as many.
  Embedding(std::string path, const std::string& source, const Dimension& rows, int64_t size,
            bool tied_to_head, Rank rank = {}, int64_t stored = 0);
  // y = the rows `ids`, which lie in the device's memory and in the host's.
  void forward(const Context& context, std::span<const int32_t> ids,
               std::span<const int32_t> host_ids, Tensor y) const;
  const Param& table() const { return *table_; }

 private:
  void look_up(const Kernels& kernels, std::span<const int32_t> ids,
               std::span<const int32_t> host_ids, Tensor y) const;
  void look_up_own(const Kernels& kernels, std::span<const int32_t> ids,
                   std::span<const int32_t> host_ids, Tensor y) const;

  Param* table_;
  Share own_;  // rows of this rank
  bool is_cut_;
};

}  // namespace sluice
