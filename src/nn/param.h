// A parameter as data: the checkpoint tensors that it is made of, and its storage once it has one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quant/format.h"
#include "src/nn/shard.h"

namespace sluice {

// The role of a parameter; decides whether a quantization scheme applies to it. A router's weight
// is float32, whatever the request says, as a choice has no small error.
enum class ParamRole : uint8_t { linear, embedding, head, norm, bias, router };

// The part of a stored tensor that a piece is. The tensor is a matrix [outputs, inputs] or a vector
// [outputs], or a stack of these. The piece has runs of its outputs: `group` neighbours from
// `first` on, and again from every `stride` later on, until it has all of its rows.
//   all outputs                                          {}
//   up of Phi-3's gate_up_proj [2 n, in]                 {.first = n}
//   k of GPT-NeoX's query_key_value [heads * 3 d, in]    {.first = d, .group = d, .stride = 3 * d}
//   k of GPT-2's c_attn [in, 3 n]                        {.transposed = true, .first = n}
//   gate of expert e in [experts, in, 2 n]               {.index = e, .transposed = true,
//                                                         .group = 1, .stride = 2}
//   a matrix [n, 16] as a vector of its elements         {.row = 16}
//   the beginning of a table of n rows                   {.stored = n}
struct View {
  std::optional<int64_t> index = {};  // of a stack's first dimension
  int64_t stack = 0;                  // its size, where others have parts of it; 0: they have not
  bool transposed = false;            // it is stored as [inputs, outputs]
  int64_t first = 0;
  int64_t group = 0;  // 0: one run of all
  int64_t stride = 0;
  int64_t row = 0;     // of a vector: elements of a row of the matrix that is stored; 0: it is none
  int64_t stored = 0;  // outputs of the tensor, where the last are in no piece; 0: they are
  bool again = false;  // other pieces have these outputs, too
  bool operator==(const View&) const = default;
};

// A part of a checkpoint tensor, under the checkpoint's own name; mostly all of it. Vectors are [1,
// n].
struct Piece {
  std::string source;
  int64_t rows = 0;  // rows of all ranks
  int64_t cols = 0;
  bool vector = false;
  Cut cut;             // this rank's part
  int64_t offset = 0;  // where the part begins in the parameter: its row, or for vectors its column
  View view;           // its group and stride are at least 1
  bool inverted = false;  // `view.transposed` is inverted, as the checkpoint stores it: plan/bind.h
  Shard shard = {};       // from which `cut` follows

  int64_t outputs() const { return vector ? cols : rows; }
  int64_t runs() const { return outputs() / view.group; }
  // Returns the stored output that is the piece's `output`.
  int64_t stored_output(int64_t output) const {
    return view.first + output / view.group * view.stride + output % view.group;
  }
};

class WeightStream;

// Pieces stack: matrices by rows, vectors by columns. In the packed layout every piece begins on a
// panel's border, so that no panel mixes two tensors: rows between pieces are zero.
struct Param {
  std::string path;  // "model.layers.3.self_attn.qkv_proj.weight"
  ParamRole role = ParamRole::linear;
  WeightLayout layout = WeightLayout::packed;  // packed: what is multiplied, in whole panels
  std::vector<Piece> pieces = {};
  double share = 1;     // of tokens that it is multiplied with: top_k of all experts, or 1
  int64_t expert = -1;  // of those that a router chooses from, which one's it is; -1: none's
  int64_t rows = 0;     // local, padding included
  int64_t cols = 0;
  Weight value = {};               // meta until its unit is in memory
  WeightStream* stream = nullptr;  // from which the device gets it, where it does not stay there
  // The parameters that replace it where its pieces cannot be one weight: see split().
  std::vector<std::unique_ptr<Param>> parts = {};

  // Returns whether layers can compute with it, resident or streamed.
  bool is_loaded() const { return !value.is_meta() || stream != nullptr; }
  bool is_resident() const { return !value.is_meta() && stream == nullptr; }
  // Returns whether a router decides which tokens need it.
  bool is_routed() const { return share < 1; }
};

// The elements of a loaded float32 vector; null for no parameter.
inline const float* float_data(const Param* param) {
  return param != nullptr ? reinterpret_cast<const float*>(param->value.data) : nullptr;
}

// A piece to make. A bias has the specs of its weight, so that its columns match the rows.
struct PieceSpec {
  std::string source;
  int64_t rows = 0;  // output features
  int64_t cols = 0;  // input features; 0: a vector of `rows` elements
  Shard shard = Shard::whole();
  View view = {};
};

Param make_matrix(std::string path, ParamRole role, WeightLayout layout,
                  const std::vector<PieceSpec>& specs, Rank rank);
// `spec.rows` elements each, one after another, begun on multiples of `align` elements.
Param make_vector(std::string path, ParamRole role, const std::vector<PieceSpec>& specs, Rank rank,
                  int64_t align);

// A parameter for each piece of a matrix, in their order, for pieces whose formats differ: the name
// of the piece is in its path. Made by the first call, and then always the same.
std::span<const std::unique_ptr<Param>> split(Param& param);

}  // namespace sluice
