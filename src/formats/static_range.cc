// Checkpoints of Gemma that were trained for few bits and static ranges of activations ("gemma"). A
// linear layer of [outputs, inputs] is
//   weight        bytes, codes of 2 or 4 bits one after another along each row, the first one in
//                 the lowest bits; or I8
//   weight_scale  F32 [outputs, 1]: an element is (code - 2^(bits - 1)) * scale; of I8 code * scale
//   input_activation_scale and output_activation_scale, which are not read
// and a table has embedding_quantized as its weight, with
//   embedding_scale  F32 [outputs, groups]
// Modules that are not quantized have their weight itself.
#include <array>

#include "quant/groups.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/formats/list.h"

namespace sluice {
namespace {

bool names_static_range(const JsonFields& q) { return q.string_or("quant_method", "") == "gemma"; }

constexpr std::string_view kTableCodes = ".embedding_quantized";

// Bits of codes; 0: the tensor has none of such a matrix.
int stored_bits(const io::StoredTensor& codes, int64_t outputs, int64_t inputs) {
  if (codes.dtype == DType::i8) return codes.shape == Shape{outputs, inputs} ? 8 : 0;
  for (int bits : {4, 2})
    if (codes.shape == Shape{outputs, ceil_div(inputs * bits, int64_t{8})}) return bits;
  return 0;
}

class StaticRange final : public StoredFormat {
 public:
  explicit StaticRange(const io::CheckpointIndex& index) : index_(index) {}

  std::string codes_name(const std::string& weight) const override {
    const std::string of_table = stem_of(weight) + std::string(kTableCodes);
    return index_.find(weight) == nullptr && index_.find(of_table) != nullptr ? of_table : weight;
  }
  bool claims(const Piece& piece, const io::StoredTensor& codes) const override {
    return !piece.vector && !piece.view.transposed && !piece.view.index &&
           (codes.dtype == DType::u8 || codes.dtype == DType::i8);
  }
  bool ignores(const io::StoredTensor& tensor) const override {
    return tensor.name.ends_with(".k_cache_scale") || tensor.name.ends_with(".v_cache_scale");
  }

  std::shared_ptr<StoredMatrix> describe(const io::StoredTensor& codes, const WantedMatrix& wanted,
                                         MatrixTensors& tensors) const override {
    const int64_t inputs = wanted.piece.cols, outputs = wanted.outputs;
    const int bits = stored_bits(codes, outputs, inputs);
    if (bits == 0) {
      tensors.fault(
          fmt::format("{} has shape {}, which codes of 2, 4 or 8 bits of a matrix {} have "
                      "not",
                      codes.name, codes.shape.str(), Shape{outputs, inputs}.str()));
      return nullptr;
    }
    const std::string stem = stem_of(wanted.piece.source);
    for (const char* of_activations : {".input_activation_scale", ".output_activation_scale"})
      if (tensors.find(stem + of_activations) != nullptr) tensors.claim(stem + of_activations);
    const bool is_table = codes.name.ends_with(kTableCodes);
    const std::string name = stem + (is_table ? ".embedding_scale" : ".weight_scale");
    const int64_t groups = groups_of_rows(tensors.find(name), inputs);
    StoredPlane scales{.plane = Plane::scales};
    scales.tensor = tensors.get(name, {outputs, groups}, {DType::f32}, "such codes");
    if (scales.tensor == nullptr) return nullptr;
    WeightFormat kept{.dtype = DType::u8, .scales = ScaleKind::grouped};
    kept.scale_cols = groups == 1 ? round_to(inputs, int64_t{kRunCols}) : inputs / groups;
    kept.bits = bits;
    kept.symmetric = true;
    kept.zero_base = 1 << (bits - 1);
    auto matrix = std::make_shared<StoredMatrix>();
    matrix->planes = {{.plane = Plane::codes, .tensor = &codes}, scales};
    matrix->planes[0].words.is_signed = bits == 8;
    matrix->kept = kept;
    matrix->outputs = outputs;
    matrix->whole_inputs = inputs % kRunCols != 0 ? inputs
                           : groups == 1          ? kRunCols
                                                  : kept.scale_cols;
    return matrix;
  }

 private:
  // Groups of a row, as its scales have them; 1 where these are none that are supported.
  static int64_t groups_of_rows(const io::StoredTensor* scales, int64_t inputs) {
    if (scales == nullptr || scales->shape.size() != 2) return 1;
    const int64_t groups = scales->shape[1];
    return groups > 0 && inputs % groups == 0 && inputs / groups % kRunCols == 0 ? groups : 1;
  }

  const io::CheckpointIndex& index_;
};

std::unique_ptr<StoredFormat> open_static_range(const Json& config,
                                                const io::CheckpointIndex& index) {
  const std::optional<JsonFields> q = quantization_fields(config);
  return q && names_static_range(*q) ? std::make_unique<StaticRange>(index) : nullptr;
}

}  // namespace

const FormatKind kStaticRangeFormat{.is_named = names_static_range, .open = open_static_range};

}  // namespace sluice
