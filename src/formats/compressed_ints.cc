// Integers of compressed-tensors. A linear layer is
//   of "pack-quantized":
//     weight_packed      int32 [outputs, inputs * bits / 32, rounded up]: code + 2^(bits - 1), the
//                        lowest bits of a word first; 1 to 6 or 8 bits. In older files no code
//                        is in two words: of 3, 5 and 6 bits these have 10, 6 and 5 codes
//     weight_zero_point  int32 [outputs * bits / 32, rounded up, groups]: along columns, as codes;
//                        or I8 [outputs, groups]
//     weight_shape       of the matrix; config.json says the same
//     weight_g_idx       int32 [inputs]: the group of each input, with `actorder`
//   of "int-quantized" and "naive-quantized":
//     weight             I8 [outputs, inputs]
//     weight_zero_point  I8 [outputs, groups]
//   of both weight_scale [outputs, groups], or [outputs, 1], or one number, or one for each block
//   of outputs and inputs: F32, BF16, F16
// An element is (code - zero) * scale. Scales of activations are not read. Modules that are not
// quantized have their weight itself.
#include <algorithm>
#include <array>

#include "quant/groups.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/formats/compressed.h"
#include "src/formats/list.h"

namespace sluice {
namespace {

// Facts that both have.
struct Ints {
  const StoredPlane& codes;
  int bits = 8;
  std::string stem;
  const std::vector<int64_t>& group_sizes;  // that config.json has
  const std::vector<ScaleBlock>& blocks;    // the same
  int64_t of_word = 0;  // codes of a word whose upper bits are left over; 0: none are
};

// Words of so many codes.
int64_t words_of(const Ints& ints, int64_t codes) {
  return ints.of_word > 0 ? ceil_div(codes, ints.of_word)
                          : ceil_div(codes * ints.bits, int64_t{32});
}

// Inputs that share a scale where a row has `groups` of them; 0: config.json has no such size.
int64_t group_size(const Ints& ints, int64_t inputs, int64_t groups) {
  if (groups == 1) return round_to(inputs, int64_t{kRunCols});
  const auto fits = [&](int64_t size) { return ceil_div(inputs, size) == groups; };
  const auto found = std::ranges::find_if(ints.group_sizes, fits);
  return found == ints.group_sizes.end() ? 0 : *found;
}

// The plane of zeros beside these scales; nullopt with a fault where they do not fit.
std::optional<StoredPlane> zeros_of(const Ints& ints, const io::StoredTensor& stored,
                                    int64_t outputs, const StoredPlane& scales, int64_t groups,
                                    MatrixTensors& tensors) {
  StoredPlane plane;
  plane.plane = Plane::zeros;
  Shape shape{outputs, groups};
  if (stored.dtype == DType::i8) {
    plane.words.is_signed = true;
    if (scales.row_outputs > 1) {
      shape = scales.tensor->shape;
      plane.row_outputs = scales.row_outputs;
    } else if (stored.shape.elements() == 1 && groups == 1) {
      shape = stored.shape;
      plane.row_outputs = 0;
    }
  } else {
    // A zero may be in two rows of words: as many as have whole ones are read as a row.
    const bool parted = ints.of_word == 0 && 32 % ints.bits != 0;
    plane.row_outputs = parted ? 32 : 32 / ints.bits;
    if (parted) plane.row_bytes = static_cast<uint64_t>(ints.bits * groups) * sizeof(uint32_t);
    shape = {words_of(ints, outputs), groups};
    if (parted && outputs % 32 != 0) {
      tensors.fault(
          fmt::format("{} has zeros of {} bits of {} outputs, which must be a multiple of 32",
                      stored.name, ints.bits, outputs));
      return std::nullopt;
    }
  }
  plane.tensor = tensors.get(stored.name, shape, {DType::i32, DType::i8}, "zeros of integers");
  if (plane.tensor == nullptr) return std::nullopt;
  return plane;
}

// The plane of scales; its tensor is null, with a fault, where they do not fit.
StoredPlane scales_of(const Ints& ints, const WantedMatrix& wanted, MatrixTensors& tensors) {
  const std::string name = ints.stem + ".weight_scale";
  const io::StoredTensor* found = tensors.find(name);
  StoredPlane scales;
  scales.plane = Plane::scales;
  Shape shape{wanted.outputs, 1};
  if (found != nullptr && found->shape.elements() == 1) {
    shape = found->shape;
    scales.row_outputs = 0;
  } else if (found != nullptr && found->shape.size() == 2) {
    shape = {wanted.outputs, found->shape[1]};
    const auto block = std::ranges::find_if(ints.blocks, [&](const ScaleBlock& b) {
      return found->shape ==
             Shape{ceil_div(wanted.outputs, b.outputs), ceil_div(wanted.piece.cols, b.inputs)};
    });
    if (block != ints.blocks.end()) {
      shape = found->shape;
      scales.row_outputs = block->outputs;
      scales.group = block->inputs;
    }
  }
  scales.tensor =
      tensors.get(name, shape, {DType::f32, DType::bf16, DType::f16}, "scales of integers");
  return scales;
}

std::shared_ptr<StoredMatrix> describe_ints(const Ints& ints, const WantedMatrix& wanted,
                                            MatrixTensors& tensors) {
  const int64_t inputs = wanted.piece.cols, outputs = wanted.outputs;
  const StoredPlane scales = scales_of(ints, wanted, tensors);
  if (scales.tensor == nullptr) return nullptr;
  const int64_t groups = scales.row_outputs == 0 ? 1 : scales.tensor->shape[1];
  const int64_t group =
      scales.group > 0 && groups > 1 ? scales.group : group_size(ints, inputs, groups);
  if (!is_group_size(group)) {
    tensors.fault(
        fmt::format("{} has {} groups of {} inputs, which must be as many as a group_size of "
                    "config.json gives, "
                    "of 8, 16 or a multiple of {} inputs",
                    scales.tensor->name, groups, inputs, kRunCols));
    return nullptr;
  }
  auto matrix = std::make_shared<StoredMatrix>();
  matrix->planes = {ints.codes, scales};
  WeightFormat kept{.dtype = DType::u8, .scales = ScaleKind::grouped, .scale_cols = group};
  kept.bits = ints.bits;
  kept.scale_type = scales.tensor->dtype;
  const io::StoredTensor* zeros = tensors.find(ints.stem + ".weight_zero_point");
  kept.symmetric = zeros == nullptr;
  if (zeros == nullptr) {
    kept.zero_base = 1 << (ints.bits - 1);
  } else {
    const auto plane = zeros_of(ints, *zeros, outputs, scales, groups, tensors);
    if (!plane) return nullptr;
    matrix->planes.push_back(*plane);
  }
  const std::string order = ints.stem + ".weight_g_idx";
  if (tensors.find(order) != nullptr) {
    matrix->groups = tensors.get(order, {inputs}, {DType::i32}, "groups of inputs");
    if (matrix->groups == nullptr) return nullptr;
  }
  matrix->kept = kept;
  matrix->outputs = outputs;
  matrix->whole_inputs = inputs % kRunCols != 0 || ints.of_word > 0 ? inputs
                         : groups == 1                              ? kRunCols
                                       : std::max<int64_t>(group, kRunCols);
  return matrix;
}

bool is_whole_matrix(const Piece& piece) {
  return !piece.vector && !piece.view.transposed && !piece.view.index;
}

// Each input has -1 if groups have no order of their own.
bool are_ordered(std::span<const int32_t> groups) {
  return std::ranges::find(groups, -1) == groups.end();
}

class PackedInts final : public StoredFormat {
 public:
  PackedInts(const JsonFields& q, std::vector<int64_t> bits, const io::CheckpointIndex& index)
      : group_sizes_(compressed_group_sizes(q)),
        bits_(std::move(bits)),
        blocks_(compressed_blocks(q)),
        index_(index) {}

  std::string codes_name(const std::string& weight) const override {
    return stem_of(weight) + ".weight_packed";
  }
  bool claims(const Piece& piece, const io::StoredTensor& codes) const override {
    return is_whole_matrix(piece) && codes.dtype == DType::i32 &&
           index_.find(piece.source) == nullptr;
  }

  bool has_order(const StoredMatrix&, std::span<const int32_t> groups) const override {
    return are_ordered(groups);
  }
  std::shared_ptr<StoredMatrix> describe(const io::StoredTensor& codes, const WantedMatrix& wanted,
                                         MatrixTensors& tensors) const override {
    const std::string stem = stem_of(wanted.piece.source);
    StoredPlane plane;
    plane.tensor = &codes;
    std::optional<Ints> found;
    for (int64_t bits : bits_) {
      Ints ints{plane, static_cast<int>(bits), stem, group_sizes_, blocks_};
      for (int64_t of_word : {int64_t{0}, 32 / bits}) {
        ints.of_word = 32 % bits != 0 ? of_word : 0;
        const Shape shape{wanted.outputs, words_of(ints, wanted.piece.cols)};
        if (!found && codes.shape == shape) found.emplace(ints);
      }
    }
    if (!found) {
      tensors.fault(fmt::format(
          "{} has shape {}, which codes of 1 to 6 or 8 bits of a matrix {} have not", codes.name,
          codes.shape.str(), Shape{wanted.outputs, wanted.piece.cols}.str()));
      return nullptr;
    }
    const std::string of_shape = stem + ".weight_shape";
    if (tensors.find(of_shape) != nullptr &&
        tensors.get(of_shape, {2}, {DType::i64, DType::i32}, "shapes") == nullptr)
      return nullptr;
    plane.words.of_word = static_cast<int>(found->of_word);
    return describe_ints(*found, wanted, tensors);
  }

 private:
  std::vector<int64_t> group_sizes_, bits_;
  std::vector<ScaleBlock> blocks_;
  const io::CheckpointIndex& index_;
};

class EightBitInts final : public StoredFormat {
 public:
  explicit EightBitInts(const JsonFields& q)
      : group_sizes_(compressed_group_sizes(q)), blocks_(compressed_blocks(q)) {}

  bool claims(const Piece& piece, const io::StoredTensor& codes) const override {
    return is_whole_matrix(piece) && codes.dtype == DType::i8;
  }

  bool has_order(const StoredMatrix&, std::span<const int32_t> groups) const override {
    return are_ordered(groups);
  }
  std::shared_ptr<StoredMatrix> describe(const io::StoredTensor& codes, const WantedMatrix& wanted,
                                         MatrixTensors& tensors) const override {
    if (!fits_shape(codes, wanted, tensors)) return nullptr;
    const std::string stem = stem_of(codes.name);
    for (const char* name : {".input_scale", ".input_zero_point"})
      if (tensors.find(stem + name) != nullptr) tensors.claim(stem + name);
    StoredPlane plane;
    plane.words.is_signed = true;
    return describe_ints({plane, 8, stem, group_sizes_, blocks_}, wanted, tensors);
  }

 private:
  std::vector<int64_t> group_sizes_;
  std::vector<ScaleBlock> blocks_;
};

bool names_packed(const JsonFields& q) { return has_compressed_format(q, {"pack-quantized"}); }
bool names_eight_bits(const JsonFields& q) {
  return has_compressed_format(q, {"int-quantized", "naive-quantized"});
}

// Sizes of codes, those of config.json first: shapes of small matrices may be those of two.
std::vector<int64_t> packed_bits(const JsonFields& q) {
  std::vector<int64_t> sizes = compressed_bits(q);
  std::erase_if(sizes, [](int64_t bits) { return bits < 1 || bits == 7 || bits > 8; });
  sizes.insert(sizes.end(), {4, 8, 2, 3, 5, 6, 1});
  return sizes;
}

std::unique_ptr<StoredFormat> open_packed(const Json& config, const io::CheckpointIndex& index) {
  const std::optional<JsonFields> q = quantization_fields(config);
  if (!q || !names_packed(*q)) return nullptr;
  return std::make_unique<PackedInts>(*q, packed_bits(*q), index);
}

std::unique_ptr<StoredFormat> open_eight_bits(const Json& config, const io::CheckpointIndex&) {
  const std::optional<JsonFields> q = quantization_fields(config);
  if (!q || !names_eight_bits(*q)) return nullptr;
  return std::make_unique<EightBitInts>(*q);
}

}  // namespace

const FormatKind kPackedIntsFormat{.is_named = names_packed, .open = open_packed};
const FormatKind kEightBitIntsFormat{.is_named = names_eight_bits, .open = open_eight_bits};

}  // namespace sluice
