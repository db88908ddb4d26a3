// A parameter as pure data: what it is made of in the checkpoint, and its storage once it has one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quant/format.h"
#include "src/nn/shard.h"

namespace sluice {

// What a parameter is for; decides whether a quantization scheme applies to it.
enum class ParamRole : uint8_t { linear, embedding, head, norm, bias };

// One checkpoint tensor, under the checkpoint's own name. Vectors are [1, n].
struct Piece {
  std::string source;
  int64_t rows = 0;  // full shape, all ranks
  int64_t cols = 0;
  bool vector = false;
  Cut cut;             // this rank's part
  int64_t offset = 0;  // where the part begins in the parameter: its row, or for vectors its column
};

class WeightStream;

// Pieces stack: matrices by rows, vectors by columns. In the packed layout every piece begins on a
// panel's border, so that no panel mixes two tensors: rows between pieces are zero.
struct Param {
  std::string path;  // "model.layers.3.self_attn.qkv_proj.weight"
  ParamRole role = ParamRole::linear;
  WeightLayout layout = WeightLayout::packed;  // packed: what is multiplied, in whole panels
  std::vector<Piece> pieces;
  int64_t rows = 0;  // local, padding included
  int64_t cols = 0;
  Weight value;                    // meta until its unit is in memory
  WeightStream* stream = nullptr;  // from which the device gets it, where it does not stay there
};

// The same stack for a bias, whose columns must fall on the rows of its weight.
struct PieceSpec {
  std::string source;
  int64_t rows = 0;  // output features
  int64_t cols = 0;  // input features; 0: a vector of `rows` elements
  Shard shard = Shard::whole();
};

Param make_matrix(std::string path, ParamRole role, WeightLayout layout,
                  const std::vector<PieceSpec>& specs, Rank rank);
// `spec.rows` elements each, one after another, begun on multiples of `align` elements.
Param make_vector(std::string path, ParamRole role, const std::vector<PieceSpec>& specs, Rank rank,
                  int64_t align);

}  // namespace sluice
