#include "src/formats/formats.h"

#include <algorithm>
#include <cstring>

#include "io/checkpoint/read_tensors.h"
#include "quant/grouped_columns.h"
#include "src/base/error.h"
#include "src/formats/list.h"

namespace sluice {
namespace {

std::string file_of(const io::CheckpointIndex& index, const io::StoredTensor& tensor) {
  return io::printable(index.files()[tensor.file].path.string());
}

}  // namespace

const io::StoredTensor* MatrixTensors::get(const std::string& name, const Shape& shape,
                                           std::initializer_list<DType> types,
                                           std::string_view format) {
  const io::StoredTensor* stored = index_.find(name);
  claim(name);
  if (stored == nullptr) {
    index_.refuse_absent(name);
    fault(fmt::format("{} is missing (expected {})", name, shape.str()));
  } else if (std::ranges::find(types, stored->dtype) == types.end()) {
    fault(
        fmt::format("{} has dtype {}, which {} has not", name, dtype_name(stored->dtype), format));
    return nullptr;
  } else if (stored->shape != shape) {
    fault(fmt::format("{} has shape {}, but config.json asks for {}", name, stored->shape.str(),
                      shape.str()));
    return nullptr;
  }
  return stored;
}

std::string stem_of(std::string_view weight) {
  constexpr std::string_view kWeight = ".weight";
  if (weight.ends_with(kWeight)) weight.remove_suffix(kWeight.size());
  return std::string(weight);
}

std::optional<JsonFields> quantization_fields(const Json& config) {
  const auto found = config.find("quantization_config");
  if (found == config.end() || !found->is_object()) return std::nullopt;
  return JsonFields(*found, "config.json: quantization_config");
}

bool names_stored_format(const JsonFields& quantization) {
  return std::ranges::any_of(kStoredFormats, [&](const FormatKind* kind) {
    return kind->is_named != nullptr && kind->is_named(quantization);
  });
}

void settle_stored_formats(Json& config, const io::CheckpointIndex& index) {
  for (const FormatKind* kind : kStoredFormats)
    if (kind->settle != nullptr) kind->settle(config, index);
}

StoredFormats::StoredFormats(const Json& config, const io::CheckpointIndex& index) : index_(index) {
  for (const FormatKind* kind : kStoredFormats)
    if (auto format = kind->open(config, index)) formats_.push_back(std::move(format));
}

StoredFormats::Found StoredFormats::find(const Piece& piece) const {
  for (const auto& format : formats_) {
    const io::StoredTensor* codes = index_.find(format->codes_name(piece.source));
    if (codes != nullptr && format->claims(piece, *codes)) return {format.get(), codes};
  }
  return {};
}

bool StoredFormats::has(const std::string& weight) const {
  return index_.is_named(weight) || has_codes(weight);
}

bool StoredFormats::has_codes(const std::string& weight) const {
  return std::ranges::any_of(formats_, [&](const auto& format) {
    const std::string name = format->codes_name(weight);
    return name != weight && index_.is_named(name);
  });
}

std::shared_ptr<const StoredMatrix> StoredFormats::describe(const Found& found,
                                                            const WantedMatrix& wanted,
                                                            std::vector<std::string>& faults) {
  MatrixTensors tensors(index_, claimed_, faults);
  std::shared_ptr<StoredMatrix> matrix = found.format->describe(*found.codes, wanted, tensors);
  if (matrix == nullptr) return nullptr;
  if (matrix->groups != nullptr) to_order_.push_back({found.format, matrix});
  if (!matrix->small.empty()) small_.push_back({found.format, matrix});
  return matrix;
}

void StoredFormats::finish() {
  std::ranges::sort(to_order_, {},
                    [](const Described& d) { return d.matrix->groups; });  // as on disk
  constexpr size_t kTogether = 64;  // of some 100 KiB each at most
  for (size_t i = 0; i < to_order_.size(); i += kTogether)
    read_orders(std::span(to_order_).subspan(i, std::min(kTogether, to_order_.size() - i)));
  to_order_.clear();
  read_small();
}

void StoredFormats::read_orders(std::span<const Described> some) {
  std::vector<const io::StoredTensor*> tensors;
  for (const Described& d : some) tensors.push_back(d.matrix->groups);
  const std::vector<std::string> bytes = io::read_tensors(index_, tensors);
  for (size_t i = 0; i < bytes.size(); ++i) {
    StoredMatrix& matrix = *some[i].matrix;
    std::vector<int32_t> groups(bytes[i].size() / sizeof(int32_t));
    std::memcpy(groups.data(), bytes[i].data(), bytes[i].size());
    if (!some[i].format->has_order(matrix, groups)) continue;
    matrix.order = order_by_group(groups, matrix.kept->scale_cols,
                                  file_of(index_, *tensors[i]) + ": " + tensors[i]->name);
    matrix.kept->ordered = !matrix.order.empty();
  }
}

void StoredFormats::read_small() {
  std::vector<const io::StoredTensor*> tensors;
  for (const Described& s : small_)
    tensors.insert(tensors.end(), s.matrix->small.begin(), s.matrix->small.end());
  const std::vector<std::string> bytes = io::read_tensors(index_, tensors);
  std::span<const std::string> rest = bytes;
  for (const Described& s : small_) {
    const std::vector<const io::StoredTensor*>& small = s.matrix->small;
    try {
      s.format->take_small(*s.matrix, rest.first(small.size()));
    } catch (const Error& e) {
      fail(e.kind(), "{}: {}", file_of(index_, *small.front()), e.what());
    }
    rest = rest.subspan(small.size());
  }
  small_.clear();
}

bool StoredFormats::ignores(const io::StoredTensor& tensor) const {
  return std::ranges::any_of(formats_, [&](const auto& format) { return format->ignores(tensor); });
}

void StoredFormats::refuse_absent(const std::string& weight) const {
  for (const auto& format : formats_) index_.refuse_absent(format->codes_name(weight));
}

bool StoredFormats::are_input_major() const {
  return std::ranges::any_of(formats_, [](const auto& format) { return format->is_input_major(); });
}

}  // namespace sluice
