// E4M3 codes with float scales in a tensor of their own: FP8 checkpoints of DeepSeek, Qwen and
// Mistral ("fp8"), of Meta ("fbgemm_fp8"), of compressed-tensors ("float-quantized"), of ModelOpt
// and of Quark. A linear layer, or a stack of them, is
//   weight            F8_E4M3 [outputs, inputs]
//   weight_scale_inv  or weight_scale, scale or qscale_weight, a number for each block of 128
//                     outputs and 128 inputs, or of other sizes (of ModelOpt [blocks, 1, blocks,
//                     1]), for each output, for as many neighbours, or for all: F32, BF16, F16 or
//                     F8_E8M0, or U8 with the bits of F8_E8M0
//   input_scale       of activations, which stay as they are here, or another name of these
// An element is code * scale, or code / scale where config.json says so; shapes tell which modules
// have which scales, and which have none.
#include <algorithm>
#include <array>
#include <numeric>
#include <utility>
#include <vector>

#include "quant/groups.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/formats/compressed.h"
#include "src/formats/list.h"
#include "src/formats/quark.h"

namespace sluice {
namespace {

bool names_fp8(const JsonFields& q) {
  const std::string method = q.string_or("quant_method", ""),
                    algorithm = q.string_or("quant_algo", "");
  if (method == "fp8" || method == "fbgemm_fp8") return true;
  constexpr std::string_view kAlgorithms[] = {"FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO",
                                              "FP8_PB_REAL", "MIXED_PRECISION"};
  if (method == "modelopt") return std::ranges::count(kAlgorithms, algorithm) > 0;
  if (method == "quark") return has_quark_weights(q, "fp8_e4m3");
  return has_compressed_format(q, {"float-quantized", "naive-quantized"});
}

void check_fp8(const JsonFields& q) {
  // Also float8_e4m3fn; that of AMD's older GPUs has other values.
  const std::string format = q.string_or("fmt", "e4m3");
  if (format.find("e4m3") == std::string::npos || format.ends_with("fnuz"))
    fail(ErrorKind::refused, "{}: fmt is {}, but only e4m3 is supported", q.where(),
         io::printable(format));
}

// GPTQModel's scales are those that made the codes: an element is code / scale.
bool has_inverse_scales(const JsonFields& q) {
  constexpr const char* kKey = "weight_scale_semantics";
  const std::string meaning = q.string_or(kKey, "");
  if (!meaning.empty() && meaning != "inverse")
    fail(ErrorKind::refused, "{}: {} is {}, but only inverse is supported", q.where(), kKey,
         io::printable(meaning));
  return !meaning.empty();
}

// Outputs and inputs that have one scale.
using Block = ScaleBlock;

// Blocks that config.json names; modules may have several.
std::vector<Block> blocks_of(const JsonFields& q) {
  std::vector<Block> blocks = compressed_blocks(q);
  for (int64_t size : compressed_group_sizes(q)) blocks.push_back({1, size});
  if (!q.has("weight_block_size") || q.raw("weight_block_size").is_null()) {
    blocks.emplace_back();
    return blocks;
  }
  const std::optional<Block> block = scale_block(q.raw("weight_block_size"));
  if (!block)
    fail(ErrorKind::refused, "{}: weight_block_size must be two numbers, of outputs and inputs",
         q.where());
  blocks.push_back(*block);
  return blocks;
}

// Numbers of scales that a matrix has down its outputs and across its inputs.
struct Scales {
  int64_t down = 1;
  int64_t across = 1;
};

// nullopt: the shape is not that of scales of matrices in a stack of `stack`, or of one (0).
std::optional<Scales> scales_of(const Shape& shape, int64_t stack) {
  if (stack == 0 && shape.size() == 4 && shape[1] == 1 && shape[3] == 1)
    return Scales{shape[0], shape[2]};
  const int first = stack > 0 ? 1 : 0, dims = shape.size() - first;
  if (dims < 0 || dims > 2 || (stack > 0 && shape[0] != stack)) return std::nullopt;
  return Scales{dims > 0 ? shape[first] : 1, dims > 1 ? shape[first + 1] : 1};
}

class Fp8 final : public StoredFormat {
 public:
  Fp8(std::vector<Block> blocks, bool inverse) : blocks_(std::move(blocks)), inverse_(inverse) {}

  bool claims(const Piece& piece, const io::StoredTensor& codes) const override {
    return codes.dtype == DType::f8_e4m3 && !piece.vector && !piece.view.transposed;
  }

  std::shared_ptr<StoredMatrix> describe(const io::StoredTensor& codes, const WantedMatrix& wanted,
                                         MatrixTensors& tensors) const override {
    if (!fits_shape(codes, wanted, tensors)) return nullptr;
    const std::string stem = stem_of(codes.name);
    for (const char* of_inputs :
         {".input_scale", ".activation_scale", ".act_scale", ".qscale_act", ".input_scale_ub"})
      if (tensors.find(stem + of_inputs) != nullptr) tensors.claim(stem + of_inputs);
    if (const std::string of_stack = codes.name + "_activation_scale"; tensors.find(of_stack))
      tensors.claim(of_stack);
    StoredPlane scales;
    scales.plane = Plane::scales;
    scales.inverse = inverse_;
    scales.tensor = find_scales(codes.name, wanted, tensors, scales);
    if (scales.tensor == nullptr) return nullptr;
    auto matrix = std::make_shared<StoredMatrix>();
    matrix->outputs = wanted.outputs;
    matrix->planes.emplace_back();
    matrix->planes.push_back(scales);
    if (!keep(*matrix, wanted)) {
      tensors.fault(fmt::format("{} has a scale for each {} inputs, which must be a multiple of {}",
                                scales.tensor->name, scales.group, kRunCols));
      return nullptr;
    }
    return matrix;
  }

 private:
  // Returns the tensor of scales, and in `plane` the block that has one of them.
  const io::StoredTensor* find_scales(const std::string& codes, const WantedMatrix& wanted,
                                      MatrixTensors& tensors, StoredPlane& plane) const {
    const std::string stem = stem_of(codes);
    const std::array<std::string, 4> names{codes + "_scale_inv", codes + "_scale", stem + ".scale",
                                           stem + ".qscale_weight"};
    const io::StoredTensor* found = nullptr;
    for (const std::string& name : names)
      if (found == nullptr) found = tensors.find(name);
    const int64_t outputs = wanted.outputs, inputs = wanted.piece.cols;
    const int64_t stack = wanted.shape.size() == 3 ? wanted.shape[0] : 0;
    Shape shape{ceil_div(outputs, blocks_.back().outputs), ceil_div(inputs, blocks_.back().inputs)};
    if (stack > 0) shape = {stack, shape[0], shape[1]};
    const auto scales = found != nullptr ? scales_of(found->shape, stack) : std::nullopt;
    std::vector<Block> blocks = blocks_;
    blocks.push_back({outputs, inputs});
    blocks.push_back({1, inputs});
    if (stack > 0 && outputs % 2 == 0) blocks.push_back({outputs / 2, inputs});  // gate, and up
    const auto block = std::ranges::find_if(blocks, [&](const Block& b) {
      return scales && scales->down == ceil_div(outputs, b.outputs) &&
             scales->across == ceil_div(inputs, b.inputs);
    });
    if (block != blocks.end()) {
      shape = found->shape;
      plane.row_outputs = shape.elements() == std::max<int64_t>(stack, 1) ? 0 : block->outputs;
      plane.group = block->inputs < inputs ? block->inputs : 0;
    }
    return tensors.get(found != nullptr ? found->name : names.front(), shape,
                       {DType::f32, DType::bf16, DType::f16, DType::f8_e8m0, DType::u8},
                       "FP8's scales");
  }

  // Chooses the format in memory: scales of panels where no panel has outputs of two blocks, and no
  // part of the matrix begins within a block's inputs; else scales of outputs.
  static bool keep(StoredMatrix& matrix, const WantedMatrix& wanted) {
    StoredPlane& scales = matrix.planes.back();
    // Only grouped codes have scales that divide, or are bytes.
    const bool in_groups = scales.inverse || scales.tensor->dtype == DType::u8;
    matrix.kept = WeightFormat{.dtype = DType::f8_e4m3, .scales = ScaleKind::per_row};
    if (scales.group == 0 && !in_groups) return true;
    if (scales.row_outputs == kScaleBlock && scales.group == kScaleBlock && !in_groups &&
        wanted.output_step % kPanelRows == 0 && wanted.input_step % kScaleBlock == 0) {
      matrix.kept->scales = ScaleKind::per_block;
      matrix.whole_inputs = kScaleBlock;
      return true;
    }
    if (scales.group % kRunCols != 0) return false;
    keep_groups(matrix, wanted);
    return true;
  }

  static void keep_groups(StoredMatrix& matrix, const WantedMatrix& wanted) {
    const StoredPlane& scales = matrix.planes.back();
    const int64_t inputs = wanted.piece.cols;
    WeightFormat kept{.dtype = DType::u8, .scales = ScaleKind::grouped};
    kept.scale_cols = std::gcd(scales.group, wanted.input_step);
    const bool in_runs = kept.scale_cols % kRunCols == 0;  // else the part is refused
    if (!in_runs) kept.scale_cols = scales.group;
    if (scales.group == 0) kept.scale_cols = round_to(inputs, int64_t{kRunCols});
    kept.bits = 8;
    kept.table = CodeTable::e4m3;
    const DType stored = scales.tensor->dtype;
    kept.scale_type = scales.inverse ? DType::f32 : stored == DType::u8 ? DType::f8_e8m0 : stored;
    matrix.kept = kept;
    matrix.whole_inputs = in_runs ? kept.scale_cols : kRunCols;
    if (scales.group == 0) matrix.whole_inputs = inputs % kRunCols != 0 ? inputs : kRunCols;
  }

  std::vector<Block> blocks_;
  bool inverse_;  // of scales
};

std::unique_ptr<StoredFormat> open_fp8(const Json& config, const io::CheckpointIndex&) {
  const std::optional<JsonFields> q = quantization_fields(config);
  if (!q || !names_fp8(*q)) return nullptr;
  check_fp8(*q);
  return std::make_unique<Fp8>(blocks_of(*q), has_inverse_scales(*q));
}

}  // namespace

const FormatKind kFp8Format{.is_named = names_fp8, .open = open_fp8};

}  // namespace sluice
