// Checkpoints of bitsandbytes. A linear layer of [outputs, inputs] is, of 4 bits:
//   weight                   bytes, two codes each, the first in the upper nibble; one after
//   another
//                            whatever their rows
//   weight.quant_map         F32 [16]: the values of codes
//   weight.absmax            F32, a scale for each so many elements, whatever their rows; or,
//   nested,
//                            U8: codes of
//   weight.nested_quant_map  F32 [256], times
//   weight.nested_absmax     F32, a number for each 256 scales, and
//   weight.quant_state.bitsandbytes__nf4 (or fp4): JSON, with what is added to them, and sizes
// and of 8 bits:
//   weight         I8 [outputs, inputs]
//   SCB            F32 [outputs]: an element is code * (SCB * float32(1 / 127))
//   weight_format  U8, 0: by rows
// Modules that are not quantized have their weight itself.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "quant/groups.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/formats/list.h"

namespace sluice {
namespace {

constexpr int64_t kNested = 256;  // scales that have one number
constexpr std::array kStates{".quant_state.bitsandbytes__nf4", ".quant_state.bitsandbytes__fp4"};
constexpr int64_t kMostState = 64 << 10;  // bytes

bool names_bitsandbytes(const JsonFields& q) {
  const std::string method = q.string_or("quant_method", "");
  return method == "bitsandbytes" || (method.empty() && (q.boolean_or("load_in_4bit", false) ||
                                                         q.boolean_or("load_in_8bit", false)));
}

// Elements that share a number of a tensor, from how many numbers there are; 0: none of the sizes.
int64_t block_size(int64_t elements, const io::StoredTensor& numbers) {
  for (int64_t size : {64, 128, 256, 512, 1024, 2048, 4096, 32})
    if (numbers.shape.elements() == ceil_div(elements, size)) return size;
  return 0;
}

// A plane of which `block` elements of the matrix, whatever their rows, have a number each.
StoredPlane flat_plane(Plane plane, const io::StoredTensor* tensor, int64_t block, int64_t inputs) {
  const int64_t rows = block / std::gcd(block, inputs);
  StoredPlane flat;
  flat.plane = plane;
  flat.tensor = tensor;
  flat.row_outputs = rows;
  flat.flat = block;
  flat.row_bytes = static_cast<uint64_t>(rows * inputs / block * dtype_bytes(tensor->dtype));
  return flat;
}

std::vector<float> floats_of(std::string_view bytes, const io::StoredTensor& tensor) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); }))
    fail(ErrorKind::refused, "{} has values that are not finite", io::printable(tensor.name));
  return values;
}

class BitsAndBytes final : public StoredFormat {
 public:
  explicit BitsAndBytes(const io::CheckpointIndex& index) : index_(index) {}

  bool claims(const Piece& piece, const io::StoredTensor& codes) const override {
    if (piece.vector || piece.view.transposed || piece.view.index) return false;
    return codes.dtype == DType::i8 || index_.find(piece.source + ".absmax") != nullptr;
  }

  std::shared_ptr<StoredMatrix> describe(const io::StoredTensor& codes, const WantedMatrix& wanted,
                                         MatrixTensors& tensors) const override {
    const bool four_bits = index_.find(codes.name + ".absmax") != nullptr;
    return four_bits ? four(codes, wanted, tensors) : eight(codes, wanted, tensors);
  }
  void take_small(StoredMatrix& matrix, std::span<const std::string> bytes) const override;

 private:
  static std::shared_ptr<StoredMatrix> four(const io::StoredTensor& codes,
                                            const WantedMatrix& wanted, MatrixTensors& tensors);
  static bool add_nested(StoredMatrix& matrix, const io::StoredTensor& codes, int64_t inputs,
                         MatrixTensors& tensors);
  static std::shared_ptr<StoredMatrix> eight(const io::StoredTensor& codes,
                                             const WantedMatrix& wanted, MatrixTensors& tensors);

  const io::CheckpointIndex& index_;
};

std::shared_ptr<StoredMatrix> BitsAndBytes::eight(const io::StoredTensor& codes,
                                                  const WantedMatrix& wanted,
                                                  MatrixTensors& tensors) {
  if (!fits_shape(codes, wanted, tensors)) return nullptr;
  const std::string stem = stem_of(codes.name), order = stem + ".weight_format";
  const auto* scales = tensors.get(stem + ".SCB", {wanted.outputs}, {DType::f32}, "bitsandbytes");
  if (scales == nullptr) return nullptr;
  auto matrix = std::make_shared<StoredMatrix>();
  matrix->planes.resize(2);
  matrix->planes[0].words.is_signed = true;
  matrix->planes[1] = {
      .plane = Plane::scales, .tensor = scales, .factor = static_cast<float>(1.0 / 127)};
  const int64_t inputs = wanted.piece.cols;
  WeightFormat kept{.dtype = DType::u8,
                    .scales = ScaleKind::grouped,
                    .scale_cols = round_to(inputs, int64_t{kRunCols})};
  kept.bits = 8;
  kept.symmetric = true;
  kept.zero_base = 128;
  matrix->kept = kept;
  matrix->outputs = wanted.outputs;
  matrix->whole_inputs = inputs % kRunCols == 0 ? kRunCols : inputs;
  if (const io::StoredTensor* found = tensors.find(order)) {
    if (found->shape.elements() != 1 || found->dtype != DType::u8) {
      tensors.fault(fmt::format("{} is no single U8", order));
      return nullptr;
    }
    tensors.claim(order);
    matrix->small = {found};
  }
  return matrix;
}

// Adds the numbers that multiply scales of 8 bits.
bool BitsAndBytes::add_nested(StoredMatrix& matrix, const io::StoredTensor& codes, int64_t inputs,
                              MatrixTensors& tensors) {
  const StoredPlane& scales = matrix.planes[1];
  const int64_t block = scales.flat * kNested;
  const Shape count{ceil_div(scales.tensor->shape[0], kNested)};
  const auto* outers =
      tensors.get(codes.name + ".nested_absmax", count, {DType::f32}, "bitsandbytes");
  const auto* values =
      tensors.get(codes.name + ".nested_quant_map", {kScaleValues}, {DType::f32}, "bitsandbytes");
  if (outers == nullptr || values == nullptr) return false;
  const int64_t together = std::gcd(block, inputs);  // elements of a row
  matrix.planes.push_back(flat_plane(Plane::outers, outers, block, inputs));
  matrix.small.push_back(values);
  matrix.kept->outer = Outer::multiplies;
  matrix.kept->outer_groups = static_cast<int32_t>(together / matrix.kept->scale_cols);
  matrix.whole_inputs = std::max(matrix.whole_inputs, together);
  return true;
}

std::shared_ptr<StoredMatrix> BitsAndBytes::four(const io::StoredTensor& codes,
                                                 const WantedMatrix& wanted,
                                                 MatrixTensors& tensors) {
  const int64_t inputs = wanted.piece.cols, outputs = wanted.outputs;
  const auto bytes = static_cast<uint64_t>(inputs * outputs / 2);
  if (inputs % 8 != 0) {
    tensors.fault(
        fmt::format("{} has {} inputs, but bitsandbytes' codes of 4 bits are supported "
                    "for a multiple of 8 only",
                    codes.name, inputs));
    return nullptr;
  }
  if (codes.bytes != bytes) {
    tensors.fault(fmt::format("{} has {} bytes, but {} by {} codes of 4 bits have {}", codes.name,
                              codes.bytes, outputs, inputs, bytes));
    return nullptr;
  }
  const io::StoredTensor& absmax = *tensors.find(codes.name + ".absmax");
  tensors.claim(absmax.name);
  const int64_t block = block_size(inputs * outputs, absmax);
  const bool nested = absmax.dtype == DType::u8;
  if (block == 0 || absmax.shape.size() != 1 || (!nested && absmax.dtype != DType::f32)) {
    tensors.fault(fmt::format("{} is {} {}, which scales of {} elements are not", absmax.name,
                              dtype_name(absmax.dtype), absmax.shape.str(), inputs * outputs));
    return nullptr;
  }
  const auto* values =
      tensors.get(codes.name + ".quant_map", {kCodeValues}, {DType::f32}, "bitsandbytes");
  const auto state = std::ranges::find_if(
      kStates, [&](const char* name) { return tensors.find(codes.name + name) != nullptr; });
  if (values == nullptr) return nullptr;
  auto matrix = std::make_shared<StoredMatrix>();
  StoredPlane plane;
  plane.words.high_first = true;
  matrix->planes = {plane, flat_plane(Plane::scales, &absmax, block, inputs)};
  matrix->small = {values};
  WeightFormat kept{
      .dtype = DType::u8, .scales = ScaleKind::grouped, .scale_cols = std::gcd(block, inputs)};
  kept.bits = 4;
  kept.table = CodeTable::own;
  kept.scale_type = absmax.dtype;
  matrix->kept = kept;
  matrix->outputs = outputs;
  matrix->whole_inputs =
      inputs % kRunCols != 0 ? inputs : std::max<int64_t>(kept.scale_cols, kRunCols);
  if (nested && !add_nested(*matrix, codes, inputs, tensors)) return nullptr;
  if (state == kStates.end() || tensors.find(codes.name + *state)->bytes > kMostState) {
    tensors.fault(fmt::format("{}{} is missing, or too long", codes.name, kStates.front()));
    return nullptr;
  }
  tensors.claim(codes.name + *state);
  matrix->small.push_back(tensors.find(codes.name + *state));
  return matrix;
}

void BitsAndBytes::take_small(StoredMatrix& matrix, std::span<const std::string> bytes) const {
  const std::string name = io::printable(matrix.small.back()->name);
  if (matrix.kept->table != CodeTable::own) {
    if (bytes.front() != std::string_view("\0", 1))
      fail(ErrorKind::refused, "{} is not 0: only weights by rows are supported", name);
    return;
  }
  const Json json = parse_json(bytes.back(), name);
  const JsonFields state(json, name);
  const StoredPlane& scales = matrix.planes[1];
  const int64_t block = state.integer_or("blocksize", 1, int64_t{1} << 20, scales.flat);
  if (block != scales.flat)
    fail(ErrorKind::refused, "{}: blocksize is {}, but {} has a number for each {} elements", name,
         block, io::printable(scales.tensor->name), scales.flat);
  for (size_t i = 0; i + 1 < bytes.size(); ++i)
    for (float value : floats_of(bytes[i], *matrix.small[i])) matrix.tables.push_back(value);
  if (matrix.kept->scale_type != DType::u8) return;
  const int64_t nested = state.integer_or("nested_blocksize", 1, int64_t{1} << 20, kNested);
  const auto offset = static_cast<float>(state.number("nested_offset"));
  if (nested != kNested || !std::isfinite(offset))
    fail(ErrorKind::refused, "{}: nested_blocksize must be {}, and nested_offset finite", name,
         kNested);
  matrix.tables.push_back(offset);
}

std::unique_ptr<StoredFormat> open_bitsandbytes(const Json& config,
                                                const io::CheckpointIndex& index) {
  const std::optional<JsonFields> q = quantization_fields(config);
  return q && names_bitsandbytes(*q) ? std::make_unique<BitsAndBytes>(index) : nullptr;
}

}  // namespace

const FormatKind kBitsAndBytesFormat{.is_named = names_bitsandbytes, .open = open_bitsandbytes};

}  // namespace sluice
