// Elements as they are, which a scheme may quantize while they are read. The last of the formats:
// it claims what no other does.
#include <algorithm>
#include <array>

#include "src/base/error.h"
#include "src/formats/compressed.h"
#include "src/formats/list.h"

namespace sluice {
namespace {

// A convolution's [channels, 1, width], or MLX's [channels, width, 1], is a matrix, or the vector
// of its elements, a number without dimensions a vector of one, and [1, n] a vector of n. Matrices
// of a stack may lie below one another in one [all their rows, cols] (DBRX).
bool has_shape(const Shape& stored, const Shape& expected) {
  const bool convolution = stored.size() == 3 && (stored[1] == 1 || stored[2] == 1);
  const bool one_row = stored.size() == 2 && stored[0] == 1;
  if ((convolution || one_row) && expected.size() == 1) return stored.elements() == expected[0];
  if (expected.size() == 3 && stored == Shape{expected[0] * expected[1], expected[2]}) return true;
  if (stored == expected || (stored.size() == 0 && expected == Shape{1})) return true;
  Shape without_ones;
  for (int64_t size : stored)
    if (size != 1) without_ones.push_back(size);
  return stored.size() > 2 && stored.size() > expected.size() && without_ones == expected;
}

}  // namespace

bool fits_shape(const io::StoredTensor& stored, const WantedMatrix& wanted,
                MatrixTensors& tensors) {
  const Shape& expected = wanted.shape;
  if (has_shape(stored.shape, expected)) return true;
  const bool exchanged = expected.size() == 2 && stored.shape == Shape{expected[1], expected[0]};
  tensors.fault(fmt::format("{} has shape {}, but {} asks for {}{}", stored.name,
                            stored.shape.str(), wanted.asked_from, expected.str(),
                            exchanged ? " (its dimensions are exchanged)" : ""));
  return false;
}

namespace {

// Scales and zeros of activations beside those of linear layers' inputs: of their outputs, and of
// attention.
constexpr std::array<std::string_view, 9> kOfActivations{
    ".output_scale", ".output_zero_point", ".input_zero_point", ".q_scale",          ".prob_scale",
    ".q_zero_point", ".k_zero_point",      ".v_zero_point",     ".prob_output_scale"};

class Plain final : public StoredFormat {
 public:
  // `quantized`: other weights are.
  explicit Plain(bool quantized) : quantized_(quantized) { matrix_->planes.emplace_back(); }
  bool claims(const Piece&, const io::StoredTensor&) const override { return true; }
  bool ignores(const io::StoredTensor& tensor) const override {
    return quantized_ && std::ranges::any_of(kOfActivations, [&](std::string_view end) {
             return tensor.name.ends_with(end);
           });
  }

  std::shared_ptr<StoredMatrix> describe(const io::StoredTensor& codes, const WantedMatrix& wanted,
                                         MatrixTensors& tensors) const override {
    // A table of choices may be stored as integers.
    const bool integers =
        wanted.piece.vector && wanted.piece.view.row > 0 && is_integer_vector(codes.dtype);
    if (!is_float_weight(codes.dtype) && !integers) {
      tensors.fault(fmt::format(
          "{} has dtype {}, which is not a type of weights (supported: BF16, F16, F32, F64)",
          codes.name, dtype_name(codes.dtype)));
      return nullptr;
    }
    return fits_shape(codes, wanted, tensors) ? matrix_ : nullptr;
  }

 private:
  // One for all: a checkpoint may have a hundred thousand.
  std::shared_ptr<StoredMatrix> matrix_ = std::make_shared<StoredMatrix>();
  bool quantized_;
};

std::unique_ptr<StoredFormat> open_plain(const Json& config, const io::CheckpointIndex&) {
  return std::make_unique<Plain>(quantization_fields(config).has_value());
}

}  // namespace

const FormatKind kPlainFormat{.is_named = has_plain_compressed_weights, .open = open_plain};

}  // namespace sluice
