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

std::string stem_of(const Piece& piece) {
  constexpr std::string_view kWeight = ".weight";
  return piece.source.ends_with(kWeight)
             ? piece.source.substr(0, piece.source.size() - kWeight.size())
             : piece.source;
}

constexpr std::string_view kZerosLessOne = "gptq", kZeros = "gptq_v2";

// The beginnings of zeros, of at most so many tensors, spread over the checkpoint, in disk order.
std::vector<io::StoredTensor> some_zeros(const io::CheckpointIndex& index) {
  constexpr size_t kMost = 32;
  constexpr uint64_t kBytes = 3 * KiB;  // whole runs of codes of any size
  std::vector<io::StoredTensor> all, some;
  for (const io::StoredTensor& t : index.tensors()) {
    if (t.name.ends_with(".qzeros") && (t.dtype == DType::i32 || t.dtype == DType::u32))
      all.push_back(t);
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

void settle_gptq_zeros(Json& config, const io::CheckpointIndex& index) {
  const std::optional<GptqConfig> gptq = gptq_config(config);
  if (!gptq) return;
  Json& named = config["quantization_config"];
  const JsonFields q(named, "config.json: quantization_config");
  const std::vector<io::StoredTensor> zeros = some_zeros(index);
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

std::optional<GptqConfig> gptq_config(const Json& config) {
  const auto found = config.find("quantization_config");
  if (found == config.end() || !found->is_object()) return std::nullopt;
  JsonFields q(*found, "config.json: quantization_config");
  if (q.string_or("quant_method", "") != "gptq") return std::nullopt;
  GptqConfig gptq;
  const int64_t bits = q.integer_or("bits", 2, 8, 4);
  if (gptq_bits(gptq_type(static_cast<int>(bits))) != bits)
    fail(ErrorKind::refused, "{}: bits are {}, but GPTQ's are 2, 3, 4 or 8", q.where(), bits);
  gptq.bits = static_cast<int>(bits);
  gptq.group_size = q.integer_or("group_size", -1, int64_t{1} << 20, -1);
  if (gptq.group_size != -1 && (gptq.group_size == 0 || gptq.group_size % kRunCols != 0))
    fail(ErrorKind::refused, "{}: group_size is {}, but must be -1 or a multiple of {}", q.where(),
         gptq.group_size, kRunCols);
  gptq.desc_act = q.boolean_or("desc_act", false);
  const std::string format = q.string_or("checkpoint_format", "gptq");
  if (format != "gptq" && format != "gptq_v2")
    fail(ErrorKind::refused,
         "{}: checkpoint_format \"{}\" is not supported; supported: gptq, gptq_v2", q.where(),
         format);
  gptq.zero_base = format == "gptq" ? 1 : 0;
  if (q.has("dynamic") && !q.raw("dynamic").empty())
    fail(ErrorKind::refused, "{}: dynamic, with settings for single modules, is not supported",
         q.where());
  return gptq;
}

const io::StoredTensor* GptqBinder::find(const Piece& piece) const {
  if (piece.vector || index_.find(piece.source) != nullptr) return nullptr;
  return index_.find(stem_of(piece) + ".qweight");
}

const io::StoredTensor* GptqBinder::tensor(const std::string& name, const Shape& shape,
                                           std::initializer_list<DType> types,
                                           std::vector<std::string>& faults) {
  const io::StoredTensor* stored = index_.find(name);
  claimed_.insert(name);
  if (stored == nullptr) {
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

void GptqBinder::add(TensorPlan& codes, const Piece& piece, std::vector<std::string>& faults) {
  const std::string stem = stem_of(piece);
  const View& view = piece.view;
  const size_t before = faults.size();
  const int64_t bits = config_.bits;
  const int64_t group = config_.group_size > 0 ? config_.group_size : piece.cols;
  const bool whole = view.first == 0 && view.group == piece.rows && !view.transposed && !view.index;
  if (!whole || piece.cols % kRunCols != 0 || piece.rows * bits % 32 != 0) {
    faults.push_back(fmt::format("{}.qweight has a layout that GPTQ has not", stem));
    claimed_.insert(stem + ".qweight");
    return;
  }
  const int64_t groups = ceil_div(piece.cols, group);
  auto source = std::make_shared<GptqSource>();
  source->zeros =
      tensor(stem + ".qzeros", {groups, piece.rows * bits / 32}, {DType::i32, DType::u32}, faults);
  source->scales =
      tensor(stem + ".scales", {groups, piece.rows}, {DType::f16, DType::bf16}, faults);
  const io::StoredTensor* g_idx = nullptr;
  if (config_.desc_act || index_.find(stem + ".g_idx") != nullptr)
    g_idx = tensor(stem + ".g_idx", {piece.cols}, {DType::i32}, faults);
  if (faults.size() > before) return;
  WeightFormat& format = source->format;
  format = {.dtype = DType::u8, .scales = ScaleKind::grouped, .scale_cols = group};
  format.bits = config_.bits;
  format.scale_type = source->scales->dtype;
  format.zero_base = config_.zero_base;
  source->by_rows = find(piece)->dtype == DType::grouped_row;
  const Shape shape = source->by_rows
                          ? Shape{piece.rows, grouped_row_layout(format, piece.cols).bytes}
                          : Shape{piece.cols * bits / 32, piece.rows};
  codes.stored =
      tensor(stem + ".qweight", shape, {DType::i32, DType::u32, DType::grouped_row}, faults);
  if (faults.size() > before) return;
  if (config_.desc_act) to_order_.emplace_back(source, g_idx);
  codes.gptq = source;
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

RowsInFile gptq_rows(const TensorPlan& t, const Piece& piece) {
  const WeightFormat& format = t.gptq->format;
  const Cut& cut = piece.cut;
  const int64_t group = format.scale_cols;
  const bool all = cut.cols == piece.cols;
  if (!all && (format.ordered || cut.col % group != 0 || cut.cols % group != 0))
    fail(ErrorKind::refused,
         "{} cannot be divided among ranks by its inputs, as a rank's part is not whole groups of "
         "{}",
         t.stored->name, group);
  if (t.gptq->by_rows) {
    const auto row_bytes = static_cast<uint64_t>(grouped_row_layout(format, piece.cols).bytes);
    return {.begin = t.stored->offset + static_cast<uint64_t>(cut.row) * row_bytes,
            .row_bytes = row_bytes,
            .rows = cut.rows,
            .group = kPanelRows,
            .end = t.stored->offset + t.stored->bytes};
  }
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
