// Blocks of GGUF, which memory has as the file does (quant/blocks.h). Beside NAME.weight there may
// be NAME.scale, F32: a number by which all elements are multiplied, last; of a stack of experts
// one for each. NAME.input_scale is of activations, which stay as they are.
#include <algorithm>
#include <map>

#include "quant/groups.h"
#include "src/formats/list.h"

namespace sluice {
namespace {

class Blocks final : public StoredFormat {
 public:
  bool claims(const Piece& piece, const io::StoredTensor& codes) const override {
    return is_block(codes.dtype) && !piece.vector && !piece.view.transposed;
  }

  std::shared_ptr<StoredMatrix> describe(const io::StoredTensor& codes, const WantedMatrix& wanted,
                                         MatrixTensors& tensors) const override {
    if (!fits_shape(codes, wanted, tensors)) return nullptr;
    auto matrix = std::make_shared<StoredMatrix>();
    matrix->planes.emplace_back();
    matrix->kept = WeightFormat{.dtype = codes.dtype};
    matrix->outputs = wanted.outputs;
    matrix->whole_inputs = block_cols(*matrix->kept);
    return add_scale(codes, wanted, tensors, *matrix) ? matrix : nullptr;
  }

 private:
  // False, with a fault, where the scale does not fit.
  static bool add_scale(const io::StoredTensor& codes, const WantedMatrix& wanted,
                        MatrixTensors& tensors, StoredMatrix& matrix) {
    const std::string stem = stem_of(codes.name);
    const std::string input_scale = stem + ".input_scale", name = stem + ".scale";
    if (tensors.find(input_scale) != nullptr) tensors.claim(input_scale);
    if (tensors.find(name) == nullptr) return true;
    const Shape shape{wanted.piece.view.index ? codes.shape[0] : 1};
    const io::StoredTensor* scale = tensors.get(name, shape, {DType::f32}, "a scale of blocks");
    if (scale == nullptr) return false;
    matrix.kept->scales = ScaleKind::per_row;
    matrix.planes.push_back({.plane = Plane::scales, .tensor = scale, .row_outputs = 0});
    return true;
  }
};

std::unique_ptr<StoredFormat> open_blocks(const Json&, const io::CheckpointIndex& index) {
  const bool any = std::ranges::any_of(index.tensors(),
                                       [](const io::StoredTensor& t) { return is_block(t.dtype); });
  return any ? std::make_unique<Blocks>() : nullptr;
}

}  // namespace

const FormatKind kBlocksFormat{.open = open_blocks};

}  // namespace sluice
