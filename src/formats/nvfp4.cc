// NVFP4: four-bit floats (E2M1), an E4M3 scale for each 16 inputs, and one float32 for all. A
// linear layer is
//   of compressed-tensors ("nvfp4-pack-quantized"):
//     weight_packed        U8 [outputs, inputs / 2], the lower nibble first
//     weight_scale         F8_E4M3 [outputs, inputs / 16]
//     weight_global_scale  F32, one number, which divides the scales
//   of ModelOpt ("NVFP4"):
//     weight               as weight_packed
//     weight_scale         the same
//     weight_scale_2       F32, one number, which multiplies the scales
// An element is code * (scale / global), or code * (scale * global): in float32, one rounding each.
// Scales of activations are not read.
#include "quant/groups.h"
#include "src/base/error.h"
#include "src/formats/compressed.h"
#include "src/formats/list.h"

namespace sluice {
namespace {

constexpr int64_t kNvfp4Group = 16;  // inputs

bool is_modelopt(const JsonFields& q) {
  const std::string algorithm = q.string_or("quant_algo", "");
  return q.string_or("quant_method", "") == "modelopt" &&
         (algorithm == "NVFP4" || algorithm == "W4A16_NVFP4" || algorithm == "MIXED_PRECISION");
}
bool names_nvfp4(const JsonFields& q) {
  return is_modelopt(q) || has_compressed_format(q, {"nvfp4-pack-quantized"});
}

class Nvfp4 final : public StoredFormat {
 public:
  Nvfp4(bool modelopt, const io::CheckpointIndex& index) : modelopt_(modelopt), index_(index) {}

  std::string codes_name(const std::string& weight) const override {
    return modelopt_ ? weight : stem_of(weight) + ".weight_packed";
  }
  bool claims(const Piece& piece, const io::StoredTensor& codes) const override {
    return !piece.vector && !piece.view.transposed && !piece.view.index &&
           codes.dtype == DType::u8 && index_.find(outer_name(stem_of(piece.source))) != nullptr;
  }

  std::shared_ptr<StoredMatrix> describe(const io::StoredTensor& codes, const WantedMatrix& wanted,
                                         MatrixTensors& tensors) const override {
    const int64_t inputs = wanted.piece.cols, outputs = wanted.outputs;
    const std::string stem = stem_of(wanted.piece.source), outer = outer_name(stem);
    if (inputs % kNvfp4Group != 0) {
      tensors.fault(fmt::format("{} has {} inputs, which are no multiple of {}", codes.name, inputs,
                                kNvfp4Group));
      return nullptr;
    }
    for (const char* name : {".input_scale", ".input_global_scale"})
      if (tensors.find(stem + name) != nullptr) tensors.claim(stem + name);
    const Shape& one = tensors.find(outer)->shape;
    const auto* words = tensors.get(codes.name, {outputs, inputs / 2}, {DType::u8}, "NVFP4");
    const auto* scales = tensors.get(stem + ".weight_scale", {outputs, inputs / kNvfp4Group},
                                     {DType::f8_e4m3}, "NVFP4's scales");
    const auto* global = tensors.get(outer, one.elements() == 1 ? one : Shape{1}, {DType::f32},
                                     "NVFP4's scale of all");
    if (words == nullptr || scales == nullptr || global == nullptr) return nullptr;
    auto matrix = std::make_shared<StoredMatrix>();
    matrix->planes.resize(3);
    matrix->planes[0].tensor = words;
    matrix->planes[1] = {.plane = Plane::scales, .tensor = scales};
    matrix->planes[2] = {.plane = Plane::outers, .tensor = global, .row_outputs = 0};
    WeightFormat kept{.dtype = DType::u8, .scales = ScaleKind::grouped, .scale_cols = kNvfp4Group};
    kept.bits = 4;
    kept.table = CodeTable::e2m1;
    kept.scale_type = DType::f8_e4m3;
    kept.outer = modelopt_ ? Outer::multiplies : Outer::divides;
    matrix->kept = kept;
    matrix->outputs = outputs;
    matrix->whole_inputs = inputs % kRunCols == 0 ? kRunCols : inputs;
    return matrix;
  }

 private:
  std::string outer_name(const std::string& stem) const {
    return stem + (modelopt_ ? ".weight_scale_2" : ".weight_global_scale");
  }

  bool modelopt_;
  const io::CheckpointIndex& index_;
};

std::unique_ptr<StoredFormat> open_nvfp4(const Json& config, const io::CheckpointIndex& index) {
  const std::optional<JsonFields> q = quantization_fields(config);
  return q && names_nvfp4(*q) ? std::make_unique<Nvfp4>(is_modelopt(*q), index) : nullptr;
}

}  // namespace

const FormatKind kNvfp4Format{.is_named = names_nvfp4, .open = open_nvfp4};

}  // namespace sluice
