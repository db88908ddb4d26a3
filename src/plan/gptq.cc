#include "src/plan/gptq.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "io/checkpoint/read_tensors.h"
#include "quant/gptq.h"
#include "quant/grouped_rows.h"
#include "quant/groups.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"

namespace sluice {
namespace {

std::string stem_of(std::string_view weight) {
  constexpr std::string_view kWeight = ".weight";
  if (weight.ends_with(kWeight)) weight.remove_suffix(kWeight.size());
  return std::string(weight);
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
    const std::optional<int> here = gptq_one_code(words, bits);
    if (!here || (value && *value != *here)) return std::nullopt;
    value = here;
  }
  return value;
}

}  // namespace

std::string gptq_codes_name(std::string_view weight) { return stem_of(weight) + ".qweight"; }

void settle_gptq_zeros(Json& config, const io::CheckpointIndex& index) {
  const std::optional<GptqConfig> gptq = gptq_config(config);
  if (!gptq) return;
  Json& named = config["quantization_config"];
  const JsonFields q(named, "config.json: quantization_config");
  const std::vector<io::StoredTensor> zeros = some_zeros(index, gptq->bits);
  if (!q.boolean_or("sym", true) || zeros.empty()) return;
  const std::string_view format = gptq->zero_base == 1 ? kZerosLessOne : kZeros;
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

namespace {

// Fields that are absent are those of `all`.
GptqForm read_form(const JsonFields& q, const GptqForm& all) {
  GptqForm form;
  const int64_t bits = q.integer_or("bits", 2, 8, all.bits);
  if (gptq_bits(gptq_type(static_cast<int>(bits))) != bits)
    fail(ErrorKind::refused, "{}: bits are {}, but GPTQ's are 2, 3, 4 or 8", q.where(), bits);
  form.bits = static_cast<int>(bits);
  form.group_size = q.integer_or("group_size", -1, int64_t{1} << 20, all.group_size);
  if (form.group_size != -1 && (form.group_size == 0 || form.group_size % kRunCols != 0))
    fail(ErrorKind::refused, "{}: group_size is {}, but must be -1 or a multiple of {}", q.where(),
         form.group_size, kRunCols);
  form.desc_act = q.boolean_or("desc_act", all.desc_act);
  return form;
}

// Reads the forms of modules that a pattern names. A pattern that begins with "-:" excludes modules
// from quantization.
std::vector<GptqForm> read_other_forms(const JsonFields& q, const GptqForm& all) {
  std::vector<GptqForm> others;
  if (!q.has("dynamic")) return others;
  const Json& dynamic = q.raw("dynamic");
  if (!dynamic.is_object() && !dynamic.empty())
    fail(ErrorKind::refused, "{}: dynamic must be an object of patterns and settings", q.where());
  for (const auto& [pattern, settings] : dynamic.items()) {
    if (pattern.starts_with("-:")) continue;
    const std::string where = fmt::format("{}: dynamic: {}", q.where(), io::printable(pattern));
    if (!settings.is_object()) fail(ErrorKind::refused, "{} must be an object", where);
    others.push_back(read_form(JsonFields(settings, where), all));
  }
  return others;
}

}  // namespace

std::optional<GptqConfig> gptq_config(const Json& config) {
  const auto found = config.find("quantization_config");
  if (found == config.end() || !found->is_object()) return std::nullopt;
  JsonFields q(*found, "config.json: quantization_config");
  if (q.string_or("quant_method", "") != "gptq") return std::nullopt;
  GptqConfig gptq;
  static_cast<GptqForm&>(gptq) = read_form(q, {});
  const std::string format = q.string_or("checkpoint_format", "gptq");
  if (format != "gptq" && format != "gptq_v2")
    fail(ErrorKind::refused,
         "{}: checkpoint_format \"{}\" is not supported; supported: gptq, gptq_v2", q.where(),
         format);
  gptq.zero_base = format == "gptq" ? 1 : 0;
  gptq.others = read_other_forms(q, gptq);
  return gptq;
}

const io::StoredTensor* GptqBinder::find(const Piece& piece) const {
  if (piece.vector || index_.find(piece.source) != nullptr) return nullptr;
  return index_.find(gptq_codes_name(piece.source));
}

const io::StoredTensor* GptqBinder::tensor(const std::string& name, const Shape& shape,
                                           std::initializer_list<DType> types,
                                           std::vector<std::string>& faults) {
  const io::StoredTensor* stored = index_.find(name);
  claimed_.insert(name);
  if (stored == nullptr) {
    index_.refuse_absent(name);
    faults.push_back(fmt::format("{} is missing (expected {})", name, shape.str()));
  } else if (std::ranges::find(types, stored->dtype) == types.end()) {
    faults.push_back(
        fmt::format("{} has dtype {}, which GPTQ has not", name, dtype_name(stored->dtype)));
  } else if (stored->shape != shape) {
    faults.push_back(fmt::format("{} has shape {}, but config.json asks for {}", name,
                                 stored->shape.str(), shape.str()));
  }
  return stored;
}

// That of the module, or the config's, where the shapes of its tensors say no other.
const GptqForm& GptqBinder::form_of(const std::string& stem, int64_t inputs) const {
  const io::StoredTensor* scales = index_.find(stem + ".scales");
  const io::StoredTensor* zeros = index_.find(stem + ".qzeros");
  if (scales == nullptr || scales->shape.size() != 2 || zeros == nullptr ||
      zeros->shape.size() != 2)
    return config_;
  const auto is_its = [&](const GptqForm& form) {
    const int64_t group = form.group_size > 0 ? form.group_size : inputs;
    return ceil_div(inputs, group) == scales->shape[0] &&
           scales->shape[1] * form.bits == zeros->shape[1] * 32;
  };
  if (is_its(config_)) return config_;
  const auto other = std::ranges::find_if(config_.others, is_its);
  return other != config_.others.end() ? *other : config_;
}

std::shared_ptr<const GptqSource> GptqBinder::add(const Piece& piece, int64_t outputs,
                                                  std::vector<std::string>& faults) {
  const std::string stem = stem_of(piece.source);
  const size_t before = faults.size();
  const GptqForm& form = form_of(stem, piece.cols);
  const int64_t bits = form.bits;
  const int64_t group = form.group_size > 0 ? form.group_size : piece.cols;
  if (piece.view.index || piece.cols % kRunCols != 0 || outputs * bits % 32 != 0) {
    faults.push_back(fmt::format("{}.qweight has a layout that GPTQ has not", stem));
    claimed_.insert(stem + ".qweight");
    return nullptr;
  }
  const int64_t groups = ceil_div(piece.cols, group);
  auto source = std::make_shared<GptqSource>();
  source->outputs = outputs;
  source->zeros =
      tensor(stem + ".qzeros", {groups, outputs * bits / 32}, {DType::i32, DType::u32}, faults);
  source->scales = tensor(stem + ".scales", {groups, outputs}, {DType::f16, DType::bf16}, faults);
  const io::StoredTensor* g_idx = nullptr;
  if ((config_.desc_act && config_.others.empty()) || index_.find(stem + ".g_idx") != nullptr)
    g_idx = tensor(stem + ".g_idx", {piece.cols}, {DType::i32}, faults);
  if (faults.size() > before) return nullptr;
  WeightFormat& format = source->format;
  format = {.dtype = DType::u8, .scales = ScaleKind::grouped, .scale_cols = group};
  format.bits = form.bits;
  format.scale_type = source->scales->dtype;
  format.zero_base = config_.zero_base;
  source->by_rows = find(piece)->dtype == DType::grouped_row;
  const Shape shape = source->by_rows ? Shape{outputs, grouped_row_layout(format, piece.cols).bytes}
                                      : Shape{piece.cols * bits / 32, outputs};
  source->codes =
      tensor(stem + ".qweight", shape, {DType::i32, DType::u32, DType::grouped_row}, faults);
  if (faults.size() > before) return nullptr;
  // No shape tells an order.
  const bool may_be_ordered =
      config_.desc_act || std::ranges::any_of(config_.others, &GptqForm::desc_act);
  if (may_be_ordered && g_idx != nullptr) to_order_.emplace_back(source, g_idx);
  return source;
}

void GptqBinder::finish() {
  std::ranges::sort(to_order_, {}, [](const auto& item) { return item.second; });  // in disk order
  std::vector<const io::StoredTensor*> tensors;
  for (const auto& [source, g_idx] : to_order_) tensors.push_back(g_idx);
  const std::vector<std::string> bytes = io::read_tensors(index_, tensors);
  for (size_t i = 0; i < bytes.size(); ++i) {
    GptqSource& source = *to_order_[i].first;
    std::vector<int32_t> groups(bytes[i].size() / sizeof(int32_t));
    std::memcpy(groups.data(), bytes[i].data(), bytes[i].size());
    source.order = gptq_order(groups, source.format.scale_cols, tensors[i]->name);
    source.format.ordered = !source.order.empty();
    source.places.resize(source.order.size());
    for (size_t k = 0; k < source.order.size(); ++k)
      source.places[static_cast<size_t>(source.order[k])] = static_cast<int32_t>(k);
  }
}

void check_gptq_cut(const TensorPlan& t, const Piece& piece) {
  const WeightFormat& format = t.gptq->format;
  const Cut& cut = piece.cut;
  const int64_t group = format.scale_cols;
  const bool all = cut.cols == piece.cols;
  if (!all && (format.ordered || cut.col % group != 0 || cut.cols % group != 0))
    fail(ErrorKind::refused,
         "{} cannot be divided among ranks by its inputs, as a rank's part is not whole groups of "
         "{}",
         t.stored->name, group);
}

RowsInFile gptq_rows(const TensorPlan& t, const Piece& piece) {
  const WeightFormat& format = t.gptq->format;
  const Cut& cut = piece.cut;
  const int64_t group = format.scale_cols;
  int64_t first = cut.col / group, rows = ceil_div(cut.cols, group), together = 1;
  if (t.plane == Plane::codes) {
    first = cut.col * format.bits / 32;
    rows = cut.cols * format.bits / 32;
    together = format.ordered ? rows : format.bits;  // whole runs of inputs
  }
  const uint64_t row_bytes = t.stored->bytes / static_cast<uint64_t>(t.stored->shape[0]);
  return {.begin = t.stored->offset + static_cast<uint64_t>(first) * row_bytes,
          .row_bytes = row_bytes,
          .rows = rows,
          .group = together,
          .end = t.stored->offset + t.stored->bytes};
}

}  // namespace sluice
