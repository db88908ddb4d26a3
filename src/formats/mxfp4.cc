// MXFP4: four-bit floats (E2M1), and a power of two (E8M0) for each 32 inputs. A linear layer is
//   of compressed-tensors ("mxfp4-pack-quantized"), beside each other:
//     weight_packed  U8 [outputs, inputs / 2], the lower nibble first
//     weight_scale   U8 [outputs, inputs / 32]
//   of Quark, whose names are weight and weight_scale
//   of experts of DeepSeek-V4 ("fp8", with expert_dtype fp4), whose names are weight, which is I8,
//   and scale
//   of gpt-oss ("mxfp4"), where experts are stacked and elements would be [experts, inputs,
//   outputs]:
//     NAME_blocks    U8 [experts, outputs, inputs / 32, 16]
//     NAME_scales    U8 [experts, outputs, inputs / 32]
// Modules that are not quantized have their weight itself.
#include "quant/groups.h"
#include "src/base/error.h"
#include "src/formats/compressed.h"
#include "src/formats/list.h"
#include "src/formats/quark.h"

namespace sluice {
namespace {

constexpr int64_t kGroup = 32;  // inputs

bool is_packed_mxfp4(const JsonFields& q) {
  return has_compressed_format(q, {"mxfp4-pack-quantized"});
}
bool is_quark_mxfp4(const JsonFields& q) { return has_quark_weights(q, "fp4"); }
bool names_mxfp4(const JsonFields& q) {
  return q.string_or("quant_method", "") == "mxfp4" || is_packed_mxfp4(q) || is_quark_mxfp4(q);
}

// Beside FP8, of which other modules are.
bool is_beside_fp8(const Json& config, const JsonFields& q) {
  constexpr const char* kKey = "expert_dtype";
  const std::string of_model = JsonFields(config, "config.json").string_or(kKey, "");
  return q.string_or("quant_method", "") == "fp8" && q.string_or(kKey, of_model) == "fp4";
}

enum class Mxfp4Names : uint8_t { packed, quark, beside_fp8, blocks };

class Mxfp4 final : public StoredFormat {
 public:
  Mxfp4(Mxfp4Names names, const io::CheckpointIndex& index)
      : names_(names), packed_(names != Mxfp4Names::blocks), index_(index) {}

  std::string codes_name(const std::string& weight) const override {
    if (is_plain_name()) return weight;
    return packed_ ? stem_of(weight) + ".weight_packed" : weight + "_blocks";
  }
  bool claims(const Piece& piece, const io::StoredTensor& codes) const override {
    const bool has_elements = !is_plain_name() && index_.find(piece.source) != nullptr;
    return !piece.vector && codes.dtype == codes_type() && !has_elements;
  }

  std::shared_ptr<StoredMatrix> describe(const io::StoredTensor& codes, const WantedMatrix& wanted,
                                         MatrixTensors& tensors) const override {
    const int64_t inputs = wanted.piece.cols, outputs = wanted.outputs, groups = inputs / kGroup;
    if (inputs % kGroup != 0) {
      tensors.fault(fmt::format("{} has a layout that MXFP4 has not", codes.name));
      return nullptr;
    }
    Shape words, scales;
    if (wanted.piece.view.index) {
      for (Shape* shape : {&words, &scales}) shape->push_back(wanted.shape[0]);
    }
    for (Shape* shape : {&words, &scales}) shape->push_back(outputs);
    words.push_back(packed_ ? inputs / 2 : groups);
    if (!packed_) words.push_back(kGroup / 2);
    scales.push_back(groups);
    const auto* of_codes = tensors.get(codes.name, words, {codes_type()}, "MXFP4");
    const auto* of_scales = tensors.get(scales_name(wanted.piece.source), scales,
                                        {DType::u8, DType::f8_e8m0}, "MXFP4's scales");
    if (of_codes == nullptr || of_scales == nullptr) return nullptr;
    auto matrix = std::make_shared<StoredMatrix>();
    matrix->planes.resize(2);
    matrix->planes[0].tensor = of_codes;
    matrix->planes[1] = {.plane = Plane::scales, .tensor = of_scales};
    WeightFormat kept{.dtype = DType::u8, .scales = ScaleKind::grouped, .scale_cols = kGroup};
    kept.bits = 4;
    kept.table = CodeTable::e2m1;
    kept.scale_type = DType::f8_e8m0;
    matrix->kept = kept;
    matrix->outputs = outputs;
    matrix->whole_inputs = kGroup;
    return matrix;
  }

 private:
  // Codes have the name that elements would have.
  bool is_plain_name() const {
    return names_ == Mxfp4Names::quark || names_ == Mxfp4Names::beside_fp8;
  }
  DType codes_type() const { return names_ == Mxfp4Names::beside_fp8 ? DType::i8 : DType::u8; }
  std::string scales_name(const std::string& weight) const {
    if (names_ == Mxfp4Names::beside_fp8) return stem_of(weight) + ".scale";
    return packed_ ? stem_of(weight) + ".weight_scale" : weight + "_scales";
  }

  Mxfp4Names names_;
  bool packed_;  // two codes a byte, and nothing stacked
  const io::CheckpointIndex& index_;
};

std::unique_ptr<StoredFormat> open_mxfp4(const Json& config, const io::CheckpointIndex& index) {
  const std::optional<JsonFields> q = quantization_fields(config);
  if (!q || !(names_mxfp4(*q) || is_beside_fp8(config, *q))) return nullptr;
  const Mxfp4Names names = is_beside_fp8(config, *q) ? Mxfp4Names::beside_fp8
                           : is_packed_mxfp4(*q)     ? Mxfp4Names::packed
                           : is_quark_mxfp4(*q)      ? Mxfp4Names::quark
                                                     : Mxfp4Names::blocks;
  return std::make_unique<Mxfp4>(names, index);
}

}  // namespace

const FormatKind kMxfp4Format{.is_named = names_mxfp4, .open = open_mxfp4};

}  // namespace sluice
