// Checkpoints of BitNet whose weights are -1, 0 and 1. A linear layer of [outputs, inputs] is
//   weight        bytes [outputs / 4, inputs]: each has codes of two bits of an input, for four
//                 outputs that lie equally far apart, the first one's in its lowest bits
//   weight_scale  BF16, F16 or F32, one for all: an element is (code - 1) * scale where config.json
//                 says linear_class autobitlinear, else (code - 1) / scale
// Modules that are not quantized have their weight itself.
#include "quant/groups.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/formats/list.h"

namespace sluice {
namespace {

constexpr int kTernaryBits = 2, kOutputsOfByte = 4;

bool names_ternary(const JsonFields& q) { return q.string_or("quant_method", "") == "bitnet"; }

void check_ternary(const JsonFields& q) {
  if (q.string_or("quantization_mode", "offline") != "offline")
    fail(ErrorKind::refused,
         "{}: quantization_mode {} is not supported, as weights would have to be made ternary when "
         "they are loaded; give the checkpoint with packed weights",
         q.where(), io::printable(q.string_or("quantization_mode", "")));
  if (q.boolean_or("use_rms_norm", false))
    fail(ErrorKind::refused,
         "{}: use_rms_norm is not supported, as each layer would have a norm; give a checkpoint "
         "without it",
         q.where());
}

class Ternary final : public StoredFormat {
 public:
  explicit Ternary(bool divides) : divides_(divides) {}

  bool claims(const Piece& piece, const io::StoredTensor& codes) const override {
    return !piece.vector && !piece.view.transposed && !piece.view.index && codes.dtype == DType::u8;
  }
  int64_t slice_outputs(const Piece& piece, const io::StoredTensor& codes) const override {
    return codes.shape.size() == 2 && codes.shape[1] == piece.cols ? codes.shape[0] : 0;
  }

  std::shared_ptr<StoredMatrix> describe(const io::StoredTensor& codes, const WantedMatrix& wanted,
                                         MatrixTensors& tensors) const override {
    const int64_t inputs = wanted.piece.cols, outputs = wanted.outputs;
    const Shape bytes{outputs / kOutputsOfByte, inputs};
    if (outputs % kOutputsOfByte != 0 || codes.shape != bytes) {
      tensors.fault(fmt::format("{} has shape {}, which codes of {} bits of a matrix {} have not",
                                codes.name, codes.shape.str(), kTernaryBits,
                                Shape{outputs, inputs}.str()));
      return nullptr;
    }
    const std::string name = codes.name + "_scale";
    const io::StoredTensor* found = tensors.find(name);
    const bool is_one = found != nullptr && found->shape.elements() == 1;
    StoredPlane scales{.plane = Plane::scales, .row_outputs = 0, .inverse = divides_};
    scales.tensor = tensors.get(name, is_one ? found->shape : Shape{1},
                                {DType::bf16, DType::f16, DType::f32}, "ternary weights");
    if (scales.tensor == nullptr) return nullptr;
    StoredPlane plane{.tensor = &codes, .slice_outputs = bytes[0]};
    plane.words.sharing = kOutputsOfByte;
    WeightFormat kept{.dtype = DType::u8, .scales = ScaleKind::grouped};
    kept.scale_cols = round_to(inputs, int64_t{kRunCols});
    kept.bits = kTernaryBits;
    kept.scale_type = divides_ ? DType::f32 : scales.tensor->dtype;
    kept.symmetric = true;
    kept.zero_base = 1;
    auto matrix = std::make_shared<StoredMatrix>();
    matrix->planes = {plane, scales};
    matrix->kept = kept;
    matrix->outputs = outputs;
    matrix->whole_inputs = inputs % kRunCols != 0 ? inputs : kRunCols;
    return matrix;
  }

 private:
  bool divides_;
};

std::unique_ptr<StoredFormat> open_ternary(const Json& config, const io::CheckpointIndex&) {
  const std::optional<JsonFields> q = quantization_fields(config);
  if (!q || !names_ternary(*q)) return nullptr;
  check_ternary(*q);
  return std::make_unique<Ternary>(q->string_or("linear_class", "bitlinear") != "autobitlinear");
}

}  // namespace

const FormatKind kTernaryFormat{.is_named = names_ternary, .open = open_ternary};

}  // namespace sluice
