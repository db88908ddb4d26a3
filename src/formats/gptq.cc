// Checkpoints that GPTQ has quantized (AutoGPTQ's packing). A linear layer of [outputs, inputs] is
//   qweight  int32 [inputs * bits / 32, outputs]: down each column one little-endian stream
//   qzeros   int32 [groups, outputs * bits / 32]: along each row a stream of zeros, less 1 in the
//            first version of the format, without what is above its bits then
//   scales   f16, bf16 or f32 [groups, outputs]
//   g_idx    int32 [inputs]: the group of each input. Where config.json says that these have no
//            order of their own, old files have zeros
#include <algorithm>
#include <cstring>

#include "io/checkpoint/read_tensors.h"
#include "quant/grouped_columns.h"
#include "quant/groups.h"
#include "quant/order_codes.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"
#include "src/formats/list.h"

namespace sluice {
namespace {

struct GptqForm {
  int bits = 4;
  int64_t group_size = -1;  // inputs that share a scale; -1: all
  bool desc_act = false;    // g_idx says which inputs are a group
};
struct GptqConfig : GptqForm {
  uint8_t added_to_zeros = 1;  // as they are stored
  // Forms of single modules ("dynamic"): shapes of tensors tell which module has which form, as
  // names tell which modules are not quantized.
  std::vector<GptqForm> others = {};
};

bool names_gptq(const JsonFields& q) {
  const std::string method = q.string_or("quant_method", "");
  return method == "gptq" ||
         (method == "auto-round" && q.string_or("packing_format", "") == "auto_round:auto_gptq");
}

// Fields that are absent are those of `all`.
GptqForm read_form(const JsonFields& q, const GptqForm& all) {
  GptqForm form;
  const int64_t bits = q.integer_or("bits", 2, 8, all.bits);
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
    fail(ErrorKind::refused, "{}: bits are {}, but GPTQ's are 2, 3, 4 or 8", q.where(), bits);
  form.bits = static_cast<int>(bits);
  form.group_size = q.integer_or("group_size", -1, int64_t{1} << 20, all.group_size);
  if (form.group_size != -1 && (form.group_size == 0 || form.group_size % kRunCols != 0))
    fail(ErrorKind::refused, "{}: group_size is {}, but must be -1 or a multiple of {}", q.where(),
         form.group_size, kRunCols);
  form.desc_act = q.boolean_or("desc_act", all.desc_act);
  return form;
}

// Reads the forms of modules that a pattern names. A pattern that begins with "-:" and settings of
// floats exclude modules from quantization.
std::vector<GptqForm> read_other_forms(const JsonFields& q, const char* key, const GptqForm& all) {
  std::vector<GptqForm> others;
  if (!q.has(key)) return others;
  const Json& patterns = q.raw(key);
  if (!patterns.is_object() && !patterns.empty())
    fail(ErrorKind::refused, "{}: {} must be an object of patterns and settings", q.where(), key);
  for (const auto& [pattern, settings] : patterns.items()) {
    if (pattern.starts_with("-:")) continue;
    const std::string where = fmt::format("{}: {}: {}", q.where(), key, io::printable(pattern));
    if (!settings.is_object()) fail(ErrorKind::refused, "{} must be an object", where);
    const JsonFields fields(settings, where);
    if (fields.string_or("data_type", "int") == "int") others.push_back(read_form(fields, all));
  }
  return others;
}

// nullopt where config.json names another method or none. Error(refused) for what is not supported.
std::optional<GptqConfig> gptq_config(const Json& config) {
  const std::optional<JsonFields> found = quantization_fields(config);
  if (!found || !names_gptq(*found)) return std::nullopt;
  const JsonFields& q = *found;
  if (const std::string rotation = q.string_or("rotation", ""); !rotation.empty())
    fail(ErrorKind::refused,
         "{}: rotation {} is not supported, as activations would have to be rotated, too; give a "
         "checkpoint without it",
         q.where(), io::printable(rotation));
  GptqConfig gptq;
  static_cast<GptqForm&>(gptq) = read_form(q, {});
  const std::string format = q.string_or("checkpoint_format", q.string_or("format", "gptq"));
  if (format != "gptq" && format != "gptq_v2")
    fail(ErrorKind::refused,
         "{}: checkpoint_format \"{}\" is not supported; supported: gptq, gptq_v2", q.where(),
         io::printable(format));
  gptq.added_to_zeros = format == "gptq" ? 1 : 0;
  gptq.others = read_other_forms(q, "dynamic", gptq);  // GPTQModel's; and AutoRound's
  for (const GptqForm& form : read_other_forms(q, "extra_config", gptq))
    gptq.others.push_back(form);
  return gptq;
}

constexpr std::string_view kZerosLessOne = "gptq", kZeros = "gptq_v2";
constexpr std::string_view kZerosName = ".qzeros";

// The beginnings of zeros of so many bits, of at most so many tensors, spread over the checkpoint,
// in disk order.
std::vector<io::StoredTensor> some_zeros(const io::CheckpointIndex& index, int bits) {
  constexpr size_t kMost = 32;
  constexpr uint64_t kBytes = 3 * KiB;  // whole runs of codes of any size
  std::vector<io::StoredTensor> all, some;
  for (const io::StoredTensor& t : index.tensors()) {
    if (!t.name.ends_with(kZerosName) || (t.dtype != DType::i32 && t.dtype != DType::u32)) continue;
    const std::string stem = t.name.substr(0, t.name.size() - kZerosName.size());
    const io::StoredTensor* scales = index.find(stem + ".scales");
    const bool others = scales != nullptr && scales->shape.size() == 2 && t.shape.size() == 2 &&
                        t.shape[1] * 32 != scales->shape[1] * bits;
    if (!others) all.push_back(t);
  }
  const size_t count = std::min(all.size(), kMost);
  for (size_t i = 0; i < count; ++i) {
    some.push_back(all[i * all.size() / count]);
    some.back().bytes = std::min(some.back().bytes, kBytes);
  }
  return some;
}

// The value of every one of these zeros; nullopt: they differ.
std::optional<int> one_zero(const io::CheckpointIndex& index,
                            const std::vector<io::StoredTensor>& zeros, int bits) {
  std::vector<const io::StoredTensor*> tensors;
  for (const io::StoredTensor& t : zeros) tensors.push_back(&t);
  std::optional<int> value;
  for (const std::string& bytes : io::read_tensors(index, tensors)) {
    std::vector<uint32_t> words(bytes.size() / sizeof(uint32_t));
    std::memcpy(words.data(), bytes.data(), words.size() * sizeof(uint32_t));
    const std::optional<int> here = one_code(words, bits);
    if (!here || (value && *value != *here)) return std::nullopt;
    value = here;
  }
  return value;
}

// Finds out from the zeros whether they are stored less 1 (gptq) or not (gptq_v2). Symmetric
// quantization has its zeros in the middle, so they tell. Some files name the other method: then
// the zeros count, with a warning, and `config` gets their name. Looks at some layers only, and at
// each one's first zeros.
void settle_gptq_zeros(Json& config, const io::CheckpointIndex& index) {
  const std::optional<GptqConfig> gptq = gptq_config(config);
  if (!gptq) return;
  Json& named = config["quantization_config"];
  const JsonFields q(named, "config.json: quantization_config");
  const std::vector<io::StoredTensor> zeros = some_zeros(index, gptq->bits);
  if (!q.boolean_or("sym", true) || zeros.empty()) return;
  const std::string_view format = gptq->added_to_zeros == 1 ? kZerosLessOne : kZeros;
  const std::optional<int> zero = one_zero(index, zeros, gptq->bits);
  const int middle = 1 << (gptq->bits - 1);
  if (zero != middle && zero != middle - 1) {
    if (q.has("sym")) {
      log::warning(
          "{}: sym is true, but the zeros are not all {} or all {}; they are read as {} says",
          q.where(), middle - 1, middle, format);
    }
    return;
  }
  const std::string_view found = zero == middle ? kZeros : kZerosLessOne;
  if (found == format) return;
  if (q.has("checkpoint_format")) {
    log::warning("{}: checkpoint_format is {}, but all zeros are {}, as {} has them; these count",
                 q.where(), format, *zero, found);
  }
  named["checkpoint_format"] = found;
}

// That of the module, or the config's, where the shapes of its tensors say no other.
const GptqForm& form_of(const GptqConfig& config, const std::string& stem, int64_t inputs,
                        const MatrixTensors& tensors) {
  const io::StoredTensor* scales = tensors.find(stem + ".scales");
  const io::StoredTensor* zeros = tensors.find(stem + ".qzeros");
  if (scales == nullptr || scales->shape.size() != 2 || zeros == nullptr ||
      zeros->shape.size() != 2)
    return config;
  const auto is_its = [&](const GptqForm& form) {
    const int64_t group = form.group_size > 0 ? form.group_size : inputs;
    return ceil_div(inputs, group) == scales->shape[0] &&
           scales->shape[1] * form.bits == zeros->shape[1] * 32;
  };
  if (is_its(config)) return config;
  const auto other = std::ranges::find_if(config.others, is_its);
  return other != config.others.end() ? *other : config;
}

class Gptq final : public StoredFormat {
 public:
  Gptq(const GptqConfig& config, const io::CheckpointIndex& index)
      : config_(config), index_(index) {}

  std::string codes_name(const std::string& weight) const override {
    return stem_of(weight) + ".qweight";
  }
  // A checkpoint may have the weight itself.
  bool claims(const Piece& piece, const io::StoredTensor&) const override {
    return !piece.vector && index_.find(piece.source) == nullptr;
  }
  int64_t outputs_across(const io::StoredTensor& codes) const override {
    return codes.shape.size() == 2 ? codes.shape[1] : 0;
  }
  bool is_input_major() const override { return true; }
  bool has_order(const StoredMatrix& matrix, std::span<const int32_t> groups) const override;
  bool ignores(const io::StoredTensor& tensor) const override;
  std::shared_ptr<StoredMatrix> describe(const io::StoredTensor& codes, const WantedMatrix& wanted,
                                         MatrixTensors& tensors) const override;

 private:
  // No shape tells an order.
  bool is_said_ordered() const {
    return config_.desc_act || std::ranges::any_of(config_.others, &GptqForm::desc_act);
  }

  GptqConfig config_;
  const io::CheckpointIndex& index_;
};

// Returns whether each group of `size` inputs has all of them.
bool are_whole(std::span<const int32_t> groups, int64_t size) {
  const int64_t inputs = std::ssize(groups);
  std::vector<int64_t> counts(static_cast<size_t>(ceil_div(inputs, size)));
  for (int32_t group : groups) {
    if (group < 0 || group >= std::ssize(counts)) return false;
    ++counts[static_cast<size_t>(group)];
  }
  for (int64_t g = 0; g < std::ssize(counts); ++g)
    if (counts[static_cast<size_t>(g)] != std::min(size, inputs - g * size)) return false;
  return true;
}

bool Gptq::has_order(const StoredMatrix& matrix, std::span<const int32_t> groups) const {
  if (!is_said_ordered() && !are_whole(groups, matrix.kept->scale_cols)) return false;
  const int64_t inputs = std::ssize(groups), bits = matrix.kept->bits;
  if (inputs / kRunCols * bits > kMostOrderedWords && !std::ranges::is_sorted(groups))
    fail(ErrorKind::refused,
         "{} has {} inputs of {} bits in an order of their own, of which {} are supported",
         io::printable(matrix.groups->name), inputs, bits, kMostOrderedWords / bits * kRunCols);
  return true;
}

// AutoGPTQ writes zeros as the bias of a layer that has none.
bool Gptq::ignores(const io::StoredTensor& tensor) const {
  constexpr std::string_view kBias = ".bias";
  constexpr uint64_t kMostBytes = 16 * MiB;
  if (!tensor.name.ends_with(kBias) || tensor.bytes > kMostBytes) return false;
  const std::string stem = tensor.name.substr(0, tensor.name.size() - kBias.size());
  const io::StoredTensor* codes = index_.find(stem + ".qweight");
  if (codes == nullptr || tensor.shape != Shape{outputs_across(*codes)}) return false;
  const std::vector<const io::StoredTensor*> it{&tensor};
  return std::ranges::all_of(io::read_tensors(index_, it).front(),
                             [](char byte) { return byte == 0; });
}

std::shared_ptr<StoredMatrix> Gptq::describe(const io::StoredTensor& codes,
                                             const WantedMatrix& wanted,
                                             MatrixTensors& tensors) const {
  const std::string stem = stem_of(wanted.piece.source);
  const int64_t inputs = wanted.piece.cols, outputs = wanted.outputs;
  const GptqForm& form = form_of(config_, stem, inputs, tensors);
  const int64_t bits = form.bits;
  const int64_t group = form.group_size > 0 ? form.group_size : inputs;
  if (wanted.piece.view.index || inputs % kRunCols != 0 || outputs * bits % 32 != 0) {
    tensors.fault(
        fmt::format("{} has {} inputs and {} outputs, but GPTQ's words of {} bits need matrices "
                    "of a multiple of {} inputs, and outputs that fill whole words",
                    codes.name, inputs, outputs, bits, kRunCols));
    return nullptr;
  }
  const int64_t groups = ceil_div(inputs, group);
  const auto get = [&](const char* name, const Shape& shape, std::initializer_list<DType> types) {
    return tensors.get(stem + name, shape, types, "GPTQ");
  };
  const auto* zeros = get(".qzeros", {groups, outputs * bits / 32}, {DType::i32, DType::u32});
  const auto* scales = get(".scales", {groups, outputs}, {DType::f16, DType::bf16, DType::f32});
  const bool needs_order = config_.desc_act && config_.others.empty();
  const bool has_order = needs_order || tensors.find(stem + ".g_idx") != nullptr;
  const auto* order = has_order ? get(".g_idx", {inputs}, {DType::i32}) : nullptr;
  const auto* words = get(".qweight", {inputs * bits / 32, outputs}, {DType::i32, DType::u32});
  if (zeros == nullptr || scales == nullptr || (has_order && order == nullptr) || words == nullptr)
    return nullptr;
  auto matrix = std::make_shared<StoredMatrix>();
  matrix->planes = {
      {.plane = Plane::codes, .tensor = words, .run_inputs = kRunCols, .run_rows = bits},
      {.plane = Plane::zeros,
       .tensor = zeros,
       .run_inputs = group,
       .words = {.added_to_zeros = config_.added_to_zeros}},
      {.plane = Plane::scales, .tensor = scales, .run_inputs = group}};
  WeightFormat kept{.dtype = DType::u8, .scales = ScaleKind::grouped, .scale_cols = group};
  kept.bits = form.bits;
  kept.scale_type = scales->dtype;
  matrix->kept = kept;
  matrix->outputs = outputs;
  matrix->whole_inputs = group;
  matrix->groups = order;
  return matrix;
}

std::unique_ptr<StoredFormat> open_gptq(const Json& config, const io::CheckpointIndex& index) {
  const std::optional<GptqConfig> gptq = gptq_config(config);
  return gptq ? std::make_unique<Gptq>(*gptq, index) : nullptr;
}

}  // namespace

const FormatKind kGptqFormat{
    .is_named = names_gptq, .open = open_gptq, .settle = settle_gptq_zeros};

}  // namespace sluice
