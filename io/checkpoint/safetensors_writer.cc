#include "io/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "src/base/check.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kHeaderLengthBytes = 8;
// Loaders of other projects refuse files that do not say which framework's layout they have.
constexpr std::string_view kBegin = R"({"__metadata__":{"format":"pt"})";
constexpr std::string_view kEnd = "}";

// Types of parts of bytes have no alignment.
int element_bytes(DType dtype) {
  const StoredType& type = stored_type(dtype);
  return type.block_elements == 1 ? type.block_bytes : 1;
}

std::string length_of(uint64_t header_bytes) {
  std::string length;
  for (int shift = 0; shift < 64; shift += 8) length += static_cast<char>(header_bytes >> shift);
  return length;
}

std::string entry(const TensorToWrite& tensor, uint64_t begin, uint64_t end) {
  return fmt::format(R"(,{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                     Json(tensor.name).dump(), dtype_name(tensor.dtype),
                     fmt::join(tensor.shape.begin(), tensor.shape.end(), ","), begin, end);
}

// Calls f with each tensor's entry; the end of the data.
uint64_t each_entry(size_t count, const std::function<TensorToWrite(size_t)>& tensor,
                    const auto& f) {
  uint64_t end = 0;
  int size = INT32_MAX;
  for (size_t i = 0; i < count; ++i) {
    const TensorToWrite t = tensor(i);
    check(element_bytes(t.dtype) <= size, "tensors must come with the largest elements first");
    size = element_bytes(t.dtype);
    const uint64_t begin = end;
    end += data_bytes(t);
    f(entry(t, begin, end));
  }
  return end;
}

}  // namespace

uint64_t data_bytes(const TensorToWrite& tensor) {
  const std::optional<uint64_t> bytes = stored_bytes(tensor.dtype, tensor.shape);
  check(bytes.has_value(), "a tensor's size does not fit 64 bits");
  return *bytes;
}

size_t SafetensorsLayout::find(DType dtype, int lane) const {
  const auto found = std::ranges::find_if(lanes, [&](const Lane& l) {
    return l.element_bytes == element_bytes(dtype) && l.lane == lane;
  });
  check(found != lanes.end(), "a lane of the file");
  return static_cast<size_t>(found - lanes.begin());
}

SafetensorsLayout lay_out_safetensors(std::span<const TensorToWrite> tensors,
                                      std::span<const int> lanes) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto place = [&](size_t i) {
    return std::pair(-element_bytes(tensors[i].dtype), lanes[i]);
  };
  std::ranges::stable_sort(order, {}, place);
  SafetensorsLayout layout;
  std::string header(kBegin);
  each_entry(
      tensors.size(), [&](size_t i) { return tensors[order[i]]; },
      [&](const std::string& e) { header += e; });
  header += kEnd;
  header.resize(round_up(header.size(), 8), ' ');
  layout.header = length_of(header.size()) + header;
  layout.file_bytes = layout.header.size();
  for (const size_t i : order) {
    const int bytes = element_bytes(tensors[i].dtype);
    if (layout.lanes.empty() || layout.lanes.back().element_bytes != bytes ||
        layout.lanes.back().lane != lanes[i])
      layout.lanes.push_back({bytes, lanes[i], layout.file_bytes, layout.file_bytes});
    layout.file_bytes += data_bytes(tensors[i]);
    layout.lanes.back().end = layout.file_bytes;
  }
  return layout;
}

SafetensorsWriter::SafetensorsWriter(const fs::path& path, size_t count,
                                     const std::function<TensorToWrite(size_t)>& tensor,
                                     std::span<std::byte> block, const std::stop_token& stop) {
  uint64_t header = kBegin.size() + kEnd.size();
  uint64_t data = each_entry(count, tensor, [&](const std::string& e) { header += e.size(); });
  header = round_up(header, 8);  // and with it the tensors
  out_.emplace(path, kHeaderLengthBytes + header + data, block, stop);
  write_header(count, tensor, header);
}

void SafetensorsWriter::write_header(size_t count,
                                     const std::function<TensorToWrite(size_t)>& tensor,
                                     uint64_t header_bytes) {
  out_->write(length_of(header_bytes));
  out_->write(kBegin);
  each_entry(count, tensor, [&](const std::string& e) { out_->write(e); });
  out_->write(kEnd);
  while (out_->written() < kHeaderLengthBytes + header_bytes) out_->write(std::string_view(" "));
}

}  // namespace sluice::io
