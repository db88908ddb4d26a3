// Checkpoints that MLX has quantized (mlx-lm, mlx-vlm). A linear layer or a table of [outputs,
// inputs] is
//   weight  U32 [outputs, inputs * bits / 32]: along each row one little-endian stream of codes
//   scales  [outputs, inputs / group]
//   biases  as the scales; in the mode "affine" alone
// and a stack of experts has one more dimension in front. Its mode follows from these, as mlx-lm
// itself finds it:
//   affine  scales are F32, BF16 or F16: an element is code * scale + bias, of 1 to 6 or 8 bits in
//           groups of 32, 64 or 128
//   mxfp4   U8 scales are powers of two (E8M0) for 32 inputs each, codes E2M1
//   mxfp8   the same with E4M3 codes
//   nvfp4   U8 scales are E4M3 for 16 inputs each, codes E2M1; with a global_scale, F32, one for
//           each matrix, a scale is multiplied by it / (448 * 6)
// transformers writes the mode affine ("metal") with the name qbiases.
// Modules that are not quantized have a weight of floats. Settings of single modules in config.json
// say what the shapes of their tensors do.
#include <algorithm>
#include <array>

#include "quant/groups.h"
#include "src/base/error.h"
#include "src/formats/list.h"

namespace sluice {
namespace {

constexpr std::array<std::string_view, 4> kModes{"affine", "mxfp4", "mxfp8", "nvfp4"};

constexpr double kOfGlobalScale = 1.0 / (448 * 6);

bool names_metal(const JsonFields& q) { return q.string_or("quant_method", "") == "metal"; }
bool names_mlx(const JsonFields& q) {
  return names_metal(q) || q.string_or("quant_method", "") == "mlx";
}

// A form as the shapes and types of a matrix's tensors tell it.
struct MlxForm {
  int64_t bits = 0, group = 0;
  bool affine = false;
};

bool is_supported(const MlxForm& form) {
  const auto [bits, group, affine] = form;
  if (affine)
    return (group == 32 || group == 64 || group == 128) && bits >= 1 && bits <= 8 && bits != 7;
  return (bits == 4 && (group == 16 || group == 32)) || (bits == 8 && group == 32);
}

// The codes, scales and elements of a form.
WeightFormat format_of(const MlxForm& form, DType scales) {
  WeightFormat kept{.dtype = DType::u8, .scales = ScaleKind::grouped, .scale_cols = form.group};
  kept.bits = static_cast<int>(form.bits);
  if (form.affine) {
    kept.scale_type = kept.zero_type = scales;
    kept.adds_zeros = true;
  } else {
    kept.table = form.bits == 4 ? CodeTable::e2m1 : CodeTable::e4m3;
    kept.scale_type = form.group == 16 ? DType::f8_e4m3 : DType::f8_e8m0;
  }
  return kept;
}

class Mlx final : public StoredFormat {
 public:
  Mlx(std::string_view biases, const io::CheckpointIndex& index) : biases_(biases), index_(index) {}

  bool claims(const Piece& piece, const io::StoredTensor& codes) const override {
    return !piece.vector && !piece.view.transposed && codes.dtype == DType::u32 &&
           index_.find(stem_of(piece.source) + ".scales") != nullptr;
  }

  std::shared_ptr<StoredMatrix> describe(const io::StoredTensor& codes, const WantedMatrix& wanted,
                                         MatrixTensors& tensors) const override {
    const std::string stem = stem_of(codes.name);
    const io::StoredTensor& scales = *tensors.find(stem + ".scales");
    for (const std::string_view beside : {std::string_view(".scales"), biases_})
      tensors.claim(stem + std::string(beside));
    const int64_t inputs = wanted.piece.cols;
    const auto form = form_of(codes, scales, inputs);
    if (!form) {
      tensors.fault(fmt::format(
          "{} {} and {} {} {} are no quantization of {} inputs that MLX has: of 1 to 6 or 8 "
          "bits in groups of 32, 64 or 128, mxfp4, mxfp8 or nvfp4",
          codes.name, codes.shape.str(), scales.name, dtype_name(scales.dtype), scales.shape.str(),
          inputs));
      return nullptr;
    }
    const auto get = [&](const std::string& name, int64_t last, DType type) {
      Shape shape;
      if (wanted.piece.view.index) shape.push_back(wanted.shape[0]);
      shape.push_back(wanted.outputs);
      shape.push_back(last);
      return tensors.get(name, shape, {type}, "MLX");
    };
    const int64_t groups = inputs / form->group;
    auto matrix = std::make_shared<StoredMatrix>();
    matrix->planes = {
        {.plane = Plane::codes, .tensor = get(codes.name, inputs * form->bits / 32, DType::u32)},
        {.plane = Plane::scales, .tensor = get(scales.name, groups, scales.dtype)}};
    if (form->affine)
      matrix->planes.push_back({.plane = Plane::zeros,
                                .tensor = get(stem + std::string(biases_), groups, scales.dtype)});
    const std::string global = stem + ".global_scale";
    const bool has_global = form->group == 16 && tensors.find(global) != nullptr;
    if (has_global) {
      const Shape one = wanted.piece.view.index ? Shape{wanted.shape[0]} : Shape{};
      matrix->planes.push_back({.plane = Plane::outers,
                                .tensor = tensors.get(global, one, {DType::f32}, "MLX"),
                                .row_outputs = 0,
                                .factor = kOfGlobalScale});
    }
    for (const StoredPlane& plane : matrix->planes)
      if (plane.tensor == nullptr) return nullptr;
    matrix->kept = format_of(*form, scales.dtype);
    if (has_global) matrix->kept->outer = Outer::multiplies;
    matrix->outputs = wanted.outputs;
    matrix->whole_inputs = std::max<int64_t>(form->group, kRunCols);
    return matrix;
  }

 private:
  // nullopt: MLX has no such form.
  static std::optional<MlxForm> form_of(const io::StoredTensor& codes,
                                        const io::StoredTensor& scales, int64_t inputs) {
    if (codes.shape.size() < 2 || scales.shape.size() != codes.shape.size()) return std::nullopt;
    const int64_t words = codes.shape[codes.shape.size() - 1];
    const int64_t groups = scales.shape[scales.shape.size() - 1];
    const bool affine =
        scales.dtype == DType::f32 || scales.dtype == DType::bf16 || scales.dtype == DType::f16;
    if ((!affine && scales.dtype != DType::u8) || groups <= 0 || inputs % groups != 0 ||
        words > inputs || words * 32 % inputs != 0)
      return std::nullopt;
    const MlxForm form{words * 32 / inputs, inputs / groups, affine};
    if (!is_supported(form) || inputs % kRunCols != 0) return std::nullopt;
    return form;
  }

  std::string_view biases_;
  const io::CheckpointIndex& index_;
};

void check_settings(const JsonFields& q) {
  constexpr int64_t kMost = 1 << 20;
  q.integer("bits", 1, kMost);
  q.integer("group_size", 1, kMost);
  const std::string mode = q.string_or("mode", "affine");
  if (std::ranges::find(kModes, mode) == kModes.end())
    fail(ErrorKind::refused,
         "{}: mode {} is not supported; supported: affine, mxfp4, mxfp8 and nvfp4", q.where(),
         io::printable(mode));
}

std::unique_ptr<StoredFormat> open_mlx(const Json& config, const io::CheckpointIndex& index) {
  const std::optional<JsonFields> q = quantization_fields(config);
  if (!q || !names_mlx(*q)) return nullptr;
  check_settings(*q);
  return std::make_unique<Mlx>(names_metal(*q) ? ".qbiases" : ".biases", index);
}

}  // namespace

const FormatKind kMlxFormat{.is_named = names_mlx, .open = open_mlx};

}  // namespace sluice
