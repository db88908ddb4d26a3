// MXFP8: E4M3 codes, and a power of two (E8M0) for each 32 inputs. A linear layer of
// compressed-tensors ("mxfp8-quantized"), of ModelOpt ("MXFP8") and of MiniMax ("mxfp8") is
//   weight        F8_E4M3 [outputs, inputs]
//   weight_scale  U8 [outputs, inputs / 32]; also weight_scale_inv
// and a stack of experts has one more dimension in front.
#include "quant/groups.h"
#include "src/base/error.h"
#include "src/formats/compressed.h"
#include "src/formats/list.h"

namespace sluice {
namespace {

constexpr int64_t kMxfp8Group = 32;  // inputs

bool names_mxfp8(const JsonFields& q) {
  const std::string method = q.string_or("quant_method", ""),
                    algorithm = q.string_or("quant_algo", "");
  if (method == "modelopt") return algorithm == "MXFP8" || algorithm == "MIXED_PRECISION";
  return method == "mxfp8" || has_compressed_format(q, {"mxfp8-quantized"});
}

class Mxfp8 final : public StoredFormat {
 public:
  explicit Mxfp8(const io::CheckpointIndex& index) : index_(index) {}

  bool claims(const Piece& piece, const io::StoredTensor& codes) const override {
    if (piece.vector || piece.view.transposed) return false;
    const io::StoredTensor* scales = index_.find(scales_name(piece.source));
    return codes.dtype == DType::f8_e4m3 && scales != nullptr && has_powers(*scales);
  }

  std::shared_ptr<StoredMatrix> describe(const io::StoredTensor& codes, const WantedMatrix& wanted,
                                         MatrixTensors& tensors) const override {
    const int64_t inputs = wanted.piece.cols;
    if (!fits_shape(codes, wanted, tensors)) return nullptr;
    if (inputs % kMxfp8Group != 0) {
      tensors.fault(fmt::format("{} has {} inputs, which are no multiple of {}", codes.name, inputs,
                                kMxfp8Group));
      return nullptr;
    }
    const std::string input_scale = stem_of(codes.name) + ".input_scale";
    if (tensors.find(input_scale) != nullptr) tensors.claim(input_scale);
    Shape groups;
    if (wanted.piece.view.index) groups.push_back(wanted.shape[0]);
    groups.push_back(wanted.outputs);
    groups.push_back(inputs / kMxfp8Group);
    const auto* scales =
        tensors.get(scales_name(codes.name), groups, {DType::u8, DType::f8_e8m0}, "MXFP8's scales");
    if (scales == nullptr) return nullptr;
    auto matrix = std::make_shared<StoredMatrix>();
    matrix->planes.resize(2);
    matrix->planes[1] = {.plane = Plane::scales, .tensor = scales};
    WeightFormat kept{.dtype = DType::u8, .scales = ScaleKind::grouped, .scale_cols = kMxfp8Group};
    kept.bits = 8;
    kept.table = CodeTable::e4m3;
    kept.scale_type = DType::f8_e8m0;
    matrix->kept = kept;
    matrix->outputs = wanted.outputs;
    matrix->whole_inputs = kMxfp8Group;
    return matrix;
  }

 private:
  // Bytes beside FP8's scales of blocks, which may be powers of two as well.
  static bool has_powers(const io::StoredTensor& scales) {
    return scales.dtype == DType::u8 || scales.dtype == DType::f8_e8m0;
  }
  std::string scales_name(const std::string& weight) const {
    return weight + (index_.find(weight + "_scale_inv") != nullptr ? "_scale_inv" : "_scale");
  }

  const io::CheckpointIndex& index_;
};

std::unique_ptr<StoredFormat> open_mxfp8(const Json& config, const io::CheckpointIndex& index) {
  const std::optional<JsonFields> q = quantization_fields(config);
  return q && names_mxfp8(*q) ? std::make_unique<Mxfp8>(index) : nullptr;
}

}  // namespace

const FormatKind kMxfp8Format{.is_named = names_mxfp8, .open = open_mxfp8};

}  // namespace sluice
