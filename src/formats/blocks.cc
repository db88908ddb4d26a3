// Blocks of GGUF, which memory has as the file does (quant/blocks.h).
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
  bool keeps_groups() const override { return true; }

  std::shared_ptr<StoredMatrix> describe(const io::StoredTensor& codes, const WantedMatrix& wanted,
                                         MatrixTensors& tensors) const override {
    if (!fits_shape(codes, wanted, tensors)) return nullptr;
    auto matrix = std::make_shared<StoredMatrix>();
    matrix->planes.emplace_back();
    matrix->kept = WeightFormat{.dtype = codes.dtype};
    matrix->outputs = wanted.outputs;
    matrix->whole_inputs = block_cols(*matrix->kept);
    return matrix;
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
