// The layers that decoders are made of. Each declares its parameters under the checkpoint's names
// when it is built, and computes with them once they are resident.
#pragma once

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
  int64_t part_begin(size_t part) const { return weight_->pieces[part].offset; }
  int64_t part_size(size_t part) const { return weight_->pieces[part].cut.rows; }
  // The columns of y that hold one part.
  Tensor part(Tensor y, size_t index) const {
    return y.columns(part_begin(index), part_size(index));
  }

  void forward(const Context& context, Tensor x, Tensor y) const;

  const Param& weight() const { return *weight_; }
  const Param* bias() const { return bias_; }  // null: none
  // Says that it is a part of a router's expert, which a share of the tokens uses.
  void set_expert(int64_t number, double share);

 private:
  void multiply_parts(const Context& context, Tensor x, const float* bias, Tensor y) const;

  Param* weight_;
  Param* bias_ = nullptr;
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
  // x is a rank's part of rows, of which `sums` [rows, 1] has the sums of squares of all ranks.
  void forward_part(const Kernels& kernels, Tensor x, Tensor sums, Tensor y) const;
  // residual += x; y = norm(residual)
  void forward_add(const Kernels& kernels, Tensor residual, Tensor x, Tensor y) const;

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
  // parts, if `rank` is one of several.
  Embedding(std::string path, const std::string& source, const Dimension& rows, int64_t size,
            bool tied_to_head, Rank rank = {});
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
