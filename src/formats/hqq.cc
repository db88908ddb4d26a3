// Checkpoints of HQQ, as hqq and transformers save them. A linear layer of [outputs, inputs] is
//   W_q    bytes [outputs * bits / 8, inputs]: each has the codes of an input for 8 / bits outputs
//          that lie equally far apart, the first one's in its upper bits; 8, 4, 2 or 1 bits
//   scale  F16, BF16 or F32, one for each group of inputs of an output
//   zero   as scale: an element is (code - zero) * scale
//   axis   I32: 1, as groups are of inputs
// and settings, of which packing and shape are compared with these. Files may have the bytes of W_q
// in other shapes, and as another type (`view_as_float`); of 3 bits ten codes are in a word, and of
// 5 and 6 bits one is in a byte. Modules that are not quantized have their weight itself.
#include <algorithm>
#include <array>
#include <cstring>

#include "quant/groups.h"
#include "src/base/error.h"
#include "src/formats/list.h"

namespace sluice {
namespace {

constexpr std::array kHqqTensors{".nbits",
                                 ".group_size",
                                 ".channel_wise",
                                 ".optimize",
                                 ".round_zero",
                                 ".unpack_view_dtype",
                                 ".view_as_float",
                                 ".quant_scale",
                                 ".quant_zero",
                                 ".compute_dtype",
                                 ".offload_meta",
                                 ".encoded_state_dict",
                                 ".stores_quant_config"};

bool names_hqq(const JsonFields& q) { return q.string_or("quant_method", "") == "hqq"; }

// Bits of a code where `bytes` bytes have those of a matrix; 0: none of the sizes.
int hqq_bits(uint64_t bytes, int64_t outputs, int64_t inputs) {
  for (int bits : {4, 8, 2, 1}) {
    const bool is_whole = outputs * bits % 8 == 0;
    if (is_whole && bytes == static_cast<uint64_t>(outputs * bits / 8 * inputs)) return bits;
  }
  return 0;
}

class Hqq final : public StoredFormat {
 public:
  explicit Hqq(const io::CheckpointIndex& index) : index_(index) {}

  std::string codes_name(const std::string& weight) const override {
    return stem_of(weight) + ".W_q";
  }
  bool claims(const Piece& piece, const io::StoredTensor&) const override {
    return !piece.vector && !piece.view.transposed && !piece.view.index &&
           index_.find(piece.source) == nullptr;
  }
  // Rows of bytes: as many as outputs of a slice. A matrix has eight slices at most.
  int64_t slice_outputs(const Piece& piece, const io::StoredTensor& codes) const override {
    const auto rows = static_cast<int64_t>(codes.bytes / static_cast<uint64_t>(piece.cols));
    return rows >= ceil_div(piece.rows, int64_t{8}) ? rows : 0;
  }
  std::shared_ptr<StoredMatrix> describe(const io::StoredTensor& codes, const WantedMatrix& wanted,
                                         MatrixTensors& tensors) const override;
  void take_small(StoredMatrix& matrix, std::span<const std::string> bytes) const override;

 private:
  const io::CheckpointIndex& index_;
};

// The scales of groups; null, with a fault, where their number is none of groups.
const io::StoredTensor* scales_of(const std::string& stem, const WantedMatrix& wanted,
                                  MatrixTensors& tensors) {
  const int64_t inputs = wanted.piece.cols, outputs = wanted.outputs;
  const std::string name = stem + ".scale";
  const io::StoredTensor* found = tensors.find(name);
  const int64_t count = found != nullptr ? found->shape.elements().value_or(0) : 0;
  const int64_t groups = count % outputs == 0 ? count / outputs : 0;
  tensors.claim(name);
  if (groups == 0 || inputs % groups != 0 || inputs % kRunCols != 0 ||
      !is_group_size(inputs / groups)) {
    tensors.fault(
        fmt::format("{} is missing, or has not one number for each group of 8, 16 or a "
                    "multiple of {} inputs of a matrix {}",
                    name, kRunCols, Shape{outputs, inputs}.str()));
    return nullptr;
  }
  return tensors.get(name, found->shape, {DType::f16, DType::bf16, DType::f32},
                     "HQQ without quantized scales");
}

std::shared_ptr<StoredMatrix> Hqq::describe(const io::StoredTensor& codes,
                                            const WantedMatrix& wanted,
                                            MatrixTensors& tensors) const {
  const std::string stem = stem_of(wanted.piece.source);
  const int64_t inputs = wanted.piece.cols, outputs = wanted.outputs;
  for (const char* name : kHqqTensors)
    if (tensors.find(stem + name) != nullptr) tensors.claim(stem + name);
  const auto* axis = tensors.get(stem + ".axis", {}, {DType::i32}, "HQQ");
  const auto* packing = tensors.get(stem + ".packing", {7}, {DType::u8}, "HQQ");
  const auto* shape = tensors.get(stem + ".shape", {2}, {DType::i64}, "HQQ");
  const auto* scales = scales_of(stem, wanted, tensors);
  const auto* zeros = scales == nullptr
                          ? nullptr
                          : tensors.get(stem + ".zero", scales->shape, {scales->dtype}, "HQQ");
  if (axis == nullptr || packing == nullptr || shape == nullptr || zeros == nullptr) return nullptr;
  const int bits = hqq_bits(codes.bytes, outputs, inputs);
  if (bits == 0) {
    tensors.fault(fmt::format(
        "{} has {} bytes, which codes of 8, 4, 2 or 1 bits of a matrix {} have not (those "
        "of 3 bits are not supported); quantize the model with 4 bits",
        codes.name, codes.bytes, Shape{outputs, inputs}.str()));
    return nullptr;
  }
  auto matrix = std::make_shared<StoredMatrix>();
  StoredPlane plane{.tensor = &codes};
  if (bits < 8) plane.slice_outputs = outputs * bits / 8;
  plane.words.sharing = 8 / bits;
  plane.words.high_first = bits < 8;
  matrix->planes = {
      plane, {.plane = Plane::scales, .tensor = scales}, {.plane = Plane::zeros, .tensor = zeros}};
  WeightFormat kept{.dtype = DType::u8, .scales = ScaleKind::grouped};
  kept.scale_cols = inputs * outputs / *scales->shape.elements();
  kept.bits = bits;
  kept.scale_type = kept.zero_type = scales->dtype;
  matrix->kept = kept;
  matrix->outputs = outputs;
  matrix->whole_inputs = std::max<int64_t>(kept.scale_cols, kRunCols);
  matrix->small = {axis, packing, shape};
  return matrix;
}

void Hqq::take_small(StoredMatrix& matrix, std::span<const std::string> bytes) const {
  const auto refuse = [&](size_t small, const std::string& why) {
    fail(ErrorKind::refused, "{} {}", io::printable(matrix.small[small]->name), why);
  };
  int32_t axis = 0;
  std::memcpy(&axis, bytes[0].data(), sizeof axis);
  if (axis != 1)
    refuse(0, fmt::format("is {}: groups of outputs are not supported; quantize the model with "
                          "axis=1",
                          axis));
  const std::string packing = fmt::format("{}bit_u8", matrix.kept->bits);
  if (bytes[1] != packing)
    refuse(1,
           fmt::format("is {}, but W_q has as many bytes as {}", io::printable(bytes[1]), packing));
  std::array<int64_t, 2> shape{};
  std::memcpy(shape.data(), bytes[2].data(), sizeof shape);
  const int64_t inputs = static_cast<int64_t>(matrix.planes[0].tensor->bytes) * 8 /
                         (matrix.kept->bits * matrix.outputs);
  if (shape != std::array{matrix.outputs, inputs})
    refuse(2, fmt::format("is {}, but config.json asks for {}", Shape{shape[0], shape[1]}.str(),
                          Shape{matrix.outputs, inputs}.str()));
}

std::unique_ptr<StoredFormat> open_hqq(const Json& config, const io::CheckpointIndex& index) {
  const std::optional<JsonFields> q = quantization_fields(config);
  return q && names_hqq(*q) ? std::make_unique<Hqq>(index) : nullptr;
}

}  // namespace

const FormatKind kHqqFormat{.is_named = names_hqq, .open = open_hqq};

}  // namespace sluice
