#include "io/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "io/stream.h"
#include "src/base/check.h"
#include "src/base/json.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;

// Larger elements first, so that with a header of whole 8-byte words all are aligned.
std::vector<const TensorToWrite*> data_order(std::span<const TensorToWrite> tensors) {
  std::vector<const TensorToWrite*> order;
  for (const TensorToWrite& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(),
                   [](auto* a, auto* b) { return dtype_bytes(a->dtype) > dtype_bytes(b->dtype); });
  return order;
}

std::string header_of(const std::vector<const TensorToWrite*>& order) {
  Json header = Json::object();
  // Loaders of other projects refuse files that do not say which framework's layout they have.
  header["__metadata__"]["format"] = "pt";
  uint64_t offset = 0;
  for (const TensorToWrite* tensor : order) {
    check(!header.contains(tensor->name), "tensor written twice");
    uint64_t end = offset + tensor->bytes.size();
    header[tensor->name] = {
        {"dtype", dtype_name(tensor->dtype)},
        {"shape", std::vector<int64_t>(tensor->shape.begin(), tensor->shape.end())},
        {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string json = header.dump();
  json.resize(round_up(json.size(), 8), ' ');
  std::string text;
  for (int shift = 0; shift < 64; shift += 8) {
    text += static_cast<char>(static_cast<uint64_t>(json.size()) >> shift);
  }
  return text + json;
}

}  // namespace

void write_safetensors(const fs::path& path, std::span<const TensorToWrite> tensors,
                       const std::stop_token& stop) {
  for (const TensorToWrite& tensor : tensors) {
    std::optional<int64_t> elements = tensor.shape.elements();
    check(elements &&
              static_cast<uint64_t>(*elements) * static_cast<uint64_t>(dtype_bytes(tensor.dtype)) ==
                  tensor.bytes.size(),
          "tensor's bytes do not match its shape");
  }
  std::vector<const TensorToWrite*> order = data_order(tensors);
  const std::string header = header_of(order);
  std::vector<std::string_view> parts{header};
  for (const TensorToWrite* tensor : order)
    parts.emplace_back(reinterpret_cast<const char*>(tensor->bytes.data()), tensor->bytes.size());
  write_whole(path, parts, stop);
}

}  // namespace sluice::io
