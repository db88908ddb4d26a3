// Checkpoints that AWQ has quantized (the packing of its "gemm" version). A linear layer of
// [outputs, inputs] is
//   qweight  int32 [inputs, outputs / 8]: four-bit codes of eight outputs a word, in an order of
//            their own
//   qzeros   int32 [groups, outputs / 8]: zeros, as the codes
//   scales   f16, bf16 or f32 [groups, outputs]
// Modules that are not quantized have their weight itself.
#include <algorithm>

#include "quant/groups.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/formats/list.h"

namespace sluice {
namespace {

constexpr int64_t kBits = 4, kOutputsOfWord = 8;
// Nibbles of a word, from the lowest on, have outputs 0, 2, 4, 6, 1, 3, 5 and 7.
constexpr CodeWords kWords{.across = true, .places = 0x73625140};

bool names_awq(const JsonFields& q) {
  const std::string method = q.string_or("quant_method", "");
  return method == "awq" ||
         (method == "auto-round" && q.string_or("packing_format", "") == "auto_round:auto_awq");
}

class Awq final : public StoredFormat {
 public:
  Awq(int64_t group_size, const io::CheckpointIndex& index)
      : group_size_(group_size), index_(index) {}

  std::string codes_name(const std::string& weight) const override {
    return stem_of(weight) + ".qweight";
  }
  bool claims(const Piece& piece, const io::StoredTensor&) const override {
    return !piece.vector && index_.find(piece.source) == nullptr;
  }
  int64_t outputs_across(const io::StoredTensor& codes) const override {
    return codes.shape.size() == 2 ? codes.shape[1] * kOutputsOfWord : 0;
  }
  bool is_input_major() const override { return true; }

  std::shared_ptr<StoredMatrix> describe(const io::StoredTensor& codes, const WantedMatrix& wanted,
                                         MatrixTensors& tensors) const override {
    const std::string stem = stem_of(wanted.piece.source);
    const int64_t inputs = wanted.piece.cols, outputs = wanted.outputs;
    const int64_t group = group_size_ > 0 ? group_size_ : inputs;
    if (wanted.piece.view.index || inputs % kRunCols != 0 || outputs % kOutputsOfWord != 0) {
      tensors.fault(
          fmt::format("{} has {} inputs and {} outputs, but AWQ needs matrices of a multiple of {} "
                      "inputs and of {} outputs",
                      codes.name, inputs, outputs, kRunCols, kOutputsOfWord));
      return nullptr;
    }
    const int64_t groups = ceil_div(inputs, group), words = outputs / kOutputsOfWord;
    const auto get = [&](const char* name, const Shape& shape, std::initializer_list<DType> types) {
      return tensors.get(stem + name, shape, types, "AWQ");
    };
    const auto* weight = get(".qweight", {inputs, words}, {DType::i32, DType::u32});
    const auto* zeros = get(".qzeros", {groups, words}, {DType::i32, DType::u32});
    const auto* scales = get(".scales", {groups, outputs}, {DType::f16, DType::bf16, DType::f32});
    if (weight == nullptr || zeros == nullptr || scales == nullptr) return nullptr;
    auto matrix = std::make_shared<StoredMatrix>();
    matrix->planes.resize(3);
    matrix->planes[0] = {.plane = Plane::codes,
                         .tensor = weight,
                         .run_inputs = kRunCols,
                         .run_rows = kRunCols,
                         .words = kWords};
    matrix->planes[1] = {
        .plane = Plane::zeros, .tensor = zeros, .run_inputs = group, .words = kWords};
    matrix->planes[2] = {.plane = Plane::scales, .tensor = scales, .run_inputs = group};
    WeightFormat kept{.dtype = DType::u8, .scales = ScaleKind::grouped, .scale_cols = group};
    kept.bits = kBits;
    kept.scale_type = scales->dtype;
    matrix->kept = kept;
    matrix->outputs = outputs;
    matrix->whole_inputs = group;
    return matrix;
  }

 private:
  int64_t group_size_;  // inputs that share a scale; -1: all
  const io::CheckpointIndex& index_;
};

// exllama and ipex are names of what multiplies weights of the gemm version.
void check_version(const JsonFields& q) {
  constexpr std::string_view kVersions[] = {"gemm", "GEMM", "exllama", "ipex"};
  const std::string format = q.string_or("checkpoint_format", q.string_or("format", "gemm"));
  const bool of_llm_awq = q.string_or("backend", "") == "llm-awq";
  const std::string version = of_llm_awq ? "llm-awq" : q.string_or("version", format);
  if (std::ranges::count(kVersions, version) == 0)
    fail(ErrorKind::refused, "{}: version {} is not supported; supported: gemm", q.where(),
         io::printable(version));
}

std::unique_ptr<StoredFormat> open_awq(const Json& config, const io::CheckpointIndex& index) {
  const std::optional<JsonFields> q = quantization_fields(config);
  if (!q || !names_awq(*q)) return nullptr;
  const int64_t bits = q->integer_or("bits", 1, 64, q->integer_or("w_bit", 1, 64, kBits));
  if (bits != kBits) fail(ErrorKind::refused, "{}: bits are {}, but AWQ's are 4", q->where(), bits);
  check_version(*q);
  const int64_t group = q->integer_or("group_size", -1, int64_t{1} << 20,
                                      q->integer_or("q_group_size", -1, int64_t{1} << 20, 128));
  if (group != -1 && (group == 0 || group % kRunCols != 0))
    fail(ErrorKind::refused, "{}: group_size is {}, but must be -1 or a multiple of {}", q->where(),
         group, kRunCols);
  return std::make_unique<Awq>(group, index);
}

}  // namespace

const FormatKind kAwqFormat{.is_named = names_awq, .open = open_awq};

}  // namespace sluice
