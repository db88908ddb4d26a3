// E4M3 codes with float scales in a tensor of their own: FP8 checkpoints of DeepSeek and Qwen
// ("fp8"), of Meta ("fbgemm_fp8"), of compressed-tensors ("float-quantized") and of ModelOpt. A
// linear layer is
//   weight            F8_E4M3 [outputs, inputs]
//   weight_scale_inv  [ceil(outputs / 128), ceil(inputs / 128)], or
//   weight_scale      the same; or [outputs, 1]; or one number: F32, BF16, F16 or F8_E8M0
//   input_scale       of activations, which stay as they are here
// An element is code * scale; shapes tell which modules have which scales, and which have none.
#include <array>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/formats/compressed.h"
#include "src/formats/list.h"

namespace sluice {
namespace {

bool names_fp8(const JsonFields& q) {
  const std::string method = q.string_or("quant_method", ""),
                    algorithm = q.string_or("quant_algo", "");
  if (method == "fp8" || method == "fbgemm_fp8") return true;
  if (method == "modelopt") return algorithm == "FP8" || algorithm == "MIXED_PRECISION";
  return has_compressed_format(q, {"float-quantized", "naive-quantized"});
}

// Blocks of other sizes have no kernels.
void check_fp8(const JsonFields& q) {
  const std::string format = q.string_or("fmt", "e4m3");
  if (format != "e4m3")
    fail(ErrorKind::refused, "{}: fmt is {}, but only e4m3 is supported", q.where(),
         io::printable(format));
  if (q.has("weight_block_size") && q.raw("weight_block_size") != Json{kScaleBlock, kScaleBlock})
    fail(ErrorKind::refused, "{}: weight_block_size must be [{}, {}]", q.where(), kScaleBlock,
         kScaleBlock);
}

class Fp8 final : public StoredFormat {
 public:
  bool claims(const Piece& piece, const io::StoredTensor& codes) const override {
    const bool in_order = !piece.vector && !piece.view.transposed && !piece.view.index;
    return codes.dtype == DType::f8_e4m3 && in_order;
  }

  std::shared_ptr<StoredMatrix> describe(const io::StoredTensor& codes, const WantedMatrix& wanted,
                                         MatrixTensors& tensors) const override {
    if (!fits_shape(codes, wanted, tensors)) return nullptr;
    const std::string input_scale = stem_of(codes.name) + ".input_scale";
    if (tensors.find(input_scale) != nullptr) tensors.claim(input_scale);
    auto matrix = std::make_shared<StoredMatrix>();
    matrix->kept = WeightFormat{.dtype = DType::f8_e4m3, .scales = ScaleKind::per_row};
    matrix->outputs = wanted.outputs;
    StoredPlane scales;
    scales.plane = Plane::scales;
    const io::StoredTensor* stored = find_scales(codes.name, tensors);
    const Shape blocks{ceil_div(wanted.outputs, kScaleBlock),
                       ceil_div(wanted.piece.cols, kScaleBlock)};
    Shape wants = blocks;
    if (stored != nullptr && stored->shape.elements() == 1) {
      wants = stored->shape;
      scales.row_outputs = 0;
    } else if (stored != nullptr && stored->shape.elements() == wanted.outputs &&
               stored->shape[0] == wanted.outputs) {
      wants = stored->shape;
    } else {
      scales.row_outputs = kScaleBlock;
      matrix->kept->scales = ScaleKind::per_block;
      matrix->whole_inputs = kScaleBlock;
    }
    const std::string name = stored != nullptr ? stored->name : scales_names(codes.name).front();
    scales.tensor = tensors.get(name, wants, {DType::f32, DType::bf16, DType::f16, DType::f8_e8m0},
                                "FP8's scales");
    if (scales.tensor == nullptr) return nullptr;
    matrix->planes.emplace_back();
    matrix->planes.push_back(scales);
    return matrix;
  }

 private:
  static std::array<std::string, 2> scales_names(const std::string& codes) {
    return {codes + "_scale_inv", codes + "_scale"};
  }
  static const io::StoredTensor* find_scales(const std::string& codes,
                                             const MatrixTensors& tensors) {
    for (const std::string& name : scales_names(codes))
      if (const io::StoredTensor* found = tensors.find(name)) return found;
    return nullptr;
  }
};

std::unique_ptr<StoredFormat> open_fp8(const Json& config, const io::CheckpointIndex&) {
  const std::optional<JsonFields> q = quantization_fields(config);
  if (!q || !names_fp8(*q)) return nullptr;
  check_fp8(*q);
  return std::make_unique<Fp8>();
}

}  // namespace

const FormatKind kFp8Format{.is_named = names_fp8, .open = open_fp8};

}  // namespace sluice
