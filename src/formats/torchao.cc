// Checkpoints of torchao, as transformers saves its tensors: weight of a module NAME lies as
//   NAME._weight_qdata       I8 [outputs, inputs] (Int8Tensor, and IntxUnpackedToInt8Tensor, whose
//                            codes may have fewer bits), or F8_E4M3 (Float8Tensor)
//   NAME._weight_scale       F32, BF16 or F16: one for all, for each output, or of I8 for each
//                            group of inputs
//   NAME._weight_zero_point  I8, as the scales: an element is (code - zero) * scale
// and of four bits, as Int4Tensor has them:
//   NAME._weight_qdata       I8 [outputs, inputs / 2]: two codes with a sign, the lower half first
//   NAME._weight_scale       BF16, F16 or F32 [groups, outputs]
//   NAME._weight_zero_point  as the scales: an element is code * scale + zero
// Scales of activations are not read. Int4TilePackedTo4dTensor and Int4PlainInt32Tensor have words
// as one device takes them, and are refused.
#include <algorithm>

#include "quant/groups.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/formats/list.h"

namespace sluice {
namespace {

bool names_torchao(const JsonFields& q) { return q.string_or("quant_method", "") == "torchao"; }

std::string part_of(const std::string& weight, std::string_view part) {
  return fmt::format("{}._weight_{}", stem_of(weight), part);
}

// Groups of a row, whose numbers are a matrix [outputs, groups], or one number; 0: they are
// neither.
int64_t groups_of_rows(const Shape& shape, int64_t outputs, int64_t inputs) {
  if (shape.elements() == 1) return 1;
  if (shape.size() == 0 || shape.size() > 2 || shape[0] != outputs) return 0;
  const int64_t groups = shape.size() == 1 ? 1 : shape[1];
  return groups > 0 && inputs % groups == 0 ? groups : 0;
}

class TorchAo final : public StoredFormat {
 public:
  explicit TorchAo(const io::CheckpointIndex& index) : index_(index) {}

  std::string codes_name(const std::string& weight) const override {
    return part_of(weight, "qdata");
  }
  bool claims(const Piece& piece, const io::StoredTensor&) const override {
    return !piece.vector && !piece.view.transposed && !piece.view.index &&
           index_.find(piece.source) == nullptr;
  }

  std::shared_ptr<StoredMatrix> describe(const io::StoredTensor& codes, const WantedMatrix& wanted,
                                         MatrixTensors& tensors) const override {
    if (codes.dtype != DType::i8 && codes.dtype != DType::f8_e4m3) {
      tensors.fault(fmt::format(
          "{} has dtype {}: codes of four bits that lie as a GPU takes them are not supported; "
          "quantize the model with the packing format plain, or to int8 or float8",
          codes.name, dtype_name(codes.dtype)));
      return nullptr;
    }
    const std::string& weight = wanted.piece.source;
    if (tensors.find(part_of(weight, "act_pre_scale")) != nullptr) {
      tensors.fault(
          fmt::format("{} is not supported, as activations would have to be multiplied by "
                      "it; quantize the model without it",
                      part_of(weight, "act_pre_scale")));
      return nullptr;
    }
    for (const char* of_inputs : {"act_quant_scale", "act_quant_zero_point"})
      if (tensors.find(part_of(weight, of_inputs)) != nullptr)
        tensors.claim(part_of(weight, of_inputs));
    const Shape halves{wanted.outputs, wanted.piece.cols / 2};
    if (codes.dtype == DType::i8 && codes.shape == halves && wanted.piece.cols % 2 == 0)
      return describe_halves(codes, wanted, tensors);
    if (!fits_shape(codes, wanted, tensors)) return nullptr;
    const std::string name = part_of(weight, "scale");
    const io::StoredTensor* found = tensors.find(name);
    const Shape shape = found != nullptr ? found->shape : Shape{wanted.outputs, 1};
    StoredPlane scales;
    scales.plane = Plane::scales;
    scales.tensor = tensors.get(name, shape, {DType::f32, DType::bf16, DType::f16}, "torchao");
    if (scales.tensor == nullptr) return nullptr;
    scales.row_outputs = shape.elements() == 1 ? 0 : 1;
    auto matrix = std::make_shared<StoredMatrix>();
    matrix->planes = {{.plane = Plane::codes, .tensor = &codes}, scales};
    matrix->outputs = wanted.outputs;
    const int64_t groups = groups_of_rows(shape, wanted.outputs, wanted.piece.cols);
    const bool fits = codes.dtype == DType::i8 ? keep_integers(*matrix, wanted, groups, tensors)
                                               : keep_floats(*matrix, wanted, groups, tensors);
    return fits ? matrix : nullptr;
  }

 private:
  // Codes of four bits.
  static std::shared_ptr<StoredMatrix> describe_halves(const io::StoredTensor& codes,
                                                       const WantedMatrix& wanted,
                                                       MatrixTensors& tensors) {
    const std::string name = part_of(wanted.piece.source, "scale");
    const int64_t inputs = wanted.piece.cols, outputs = wanted.outputs;
    const io::StoredTensor* found = tensors.find(name);
    int64_t groups = found != nullptr && found->shape.size() == 2 ? found->shape[0] : 1;
    if (groups <= 0 || inputs % groups != 0 || inputs / groups % kRunCols != 0) {
      tensors.fault(fmt::format(
          "{} has shape {}, but there must be scales of groups of a multiple of {} inputs", name,
          found != nullptr ? found->shape.str() : "none", kRunCols));
      return nullptr;
    }
    const Shape shape{groups, outputs};
    const auto* scales = tensors.get(name, shape, {DType::f32, DType::bf16, DType::f16}, "torchao");
    if (scales == nullptr) return nullptr;
    const auto* zeros =
        tensors.get(part_of(wanted.piece.source, "zero_point"), shape, {scales->dtype}, "torchao");
    if (zeros == nullptr) return nullptr;
    auto matrix = std::make_shared<StoredMatrix>();
    matrix->planes = {
        {.plane = Plane::codes, .tensor = &codes},
        {.plane = Plane::scales, .tensor = scales, .row_outputs = 0, .across = outputs},
        {.plane = Plane::zeros, .tensor = zeros, .row_outputs = 0, .across = outputs}};
    matrix->planes[0].words.is_signed = true;
    WeightFormat kept{.dtype = DType::u8, .scales = ScaleKind::grouped};
    kept.scale_cols = inputs / groups;
    kept.bits = 4;
    kept.scale_type = kept.zero_type = scales->dtype;
    kept.adds_zeros = true;
    kept.zero_base = 8;
    matrix->kept = kept;
    matrix->outputs = outputs;
    matrix->whole_inputs = kept.scale_cols;
    return matrix;
  }

  static bool refuse_scales(const StoredMatrix& matrix, const WantedMatrix& wanted,
                            MatrixTensors& tensors) {
    const io::StoredTensor& scales = *matrix.planes[1].tensor;
    tensors.fault(fmt::format(
        "{} has shape {}, but scales of a matrix {} must be one, one for each output, or of "
        "integers "
        "one for each group of a multiple of {} inputs",
        scales.name, scales.shape.str(), Shape{wanted.outputs, wanted.piece.cols}.str(), kRunCols));
    return false;
  }

  static bool keep_floats(StoredMatrix& matrix, const WantedMatrix& wanted, int64_t groups,
                          MatrixTensors& tensors) {
    if (groups != 1) return refuse_scales(matrix, wanted, tensors);
    matrix.kept = WeightFormat{.dtype = DType::f8_e4m3, .scales = ScaleKind::per_row};
    return true;
  }

  static bool keep_integers(StoredMatrix& matrix, const WantedMatrix& wanted, int64_t groups,
                            MatrixTensors& tensors) {
    const int64_t inputs = wanted.piece.cols;
    if (groups == 0 || (groups > 1 && inputs / groups % kRunCols != 0))
      return refuse_scales(matrix, wanted, tensors);
    const StoredPlane& scales = matrix.planes[1];
    WeightFormat kept{.dtype = DType::u8, .scales = ScaleKind::grouped};
    kept.scale_cols = groups == 1 ? round_to(inputs, int64_t{kRunCols}) : inputs / groups;
    kept.bits = 8;
    kept.scale_type = scales.tensor->dtype;
    matrix.planes[0].words.is_signed = true;
    const std::string name = part_of(wanted.piece.source, "zero_point");
    kept.symmetric = tensors.find(name) == nullptr;
    if (kept.symmetric) {
      kept.zero_base = 128;
    } else {
      StoredPlane zeros{.plane = Plane::zeros, .row_outputs = scales.row_outputs};
      zeros.words.is_signed = true;
      zeros.tensor = tensors.get(name, scales.tensor->shape, {DType::i8}, "torchao");
      if (zeros.tensor == nullptr) return false;
      matrix.planes.push_back(zeros);
    }
    matrix.kept = kept;
    matrix.whole_inputs = inputs % kRunCols != 0 ? inputs
                          : groups == 1          ? kRunCols
                                                 : kept.scale_cols;
    return true;
  }

  const io::CheckpointIndex& index_;
};

std::unique_ptr<StoredFormat> open_torchao(const Json& config, const io::CheckpointIndex& index) {
  const std::optional<JsonFields> q = quantization_fields(config);
  return q && names_torchao(*q) ? std::make_unique<TorchAo>(index) : nullptr;
}

}  // namespace

const FormatKind kTorchAoFormat{.is_named = names_torchao, .open = open_torchao};

}  // namespace sluice
