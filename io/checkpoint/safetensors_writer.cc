#include "io/checkpoint/safetensors_writer.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "io/file.h"
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

uint64_t data_bytes(const TensorToWrite& tensor) {
  const std::optional<uint64_t> bytes = stored_bytes(tensor.dtype, tensor.shape);
  check(bytes.has_value(), "a tensor's size does not fit 64 bits");
  return *bytes;
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
  int64_t size = INT64_MAX;
  for (size_t i = 0; i < count; ++i) {
    const TensorToWrite t = tensor(i);
    check(dtype_bytes(t.dtype) <= size, "tensors must come with the largest elements first");
    size = dtype_bytes(t.dtype);
    const uint64_t begin = end;
    end += data_bytes(t);
    f(entry(t, begin, end));
  }
  return end;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(fs::path path, size_t count,
                                     const std::function<TensorToWrite(size_t)>& tensor,
                                     std::span<std::byte> block, const std::stop_token& stop)
    : block_(block) {
  uint64_t header = kBegin.size() + kEnd.size();
  uint64_t data = each_entry(count, tensor, [&](const std::string& e) { header += e.size(); });
  header = round_up(header, 8);  // and with it the tensors
  bytes_ = kHeaderLengthBytes + header + data;
  if (path == "-") {
    stream_.emplace(path, stop);
  } else if (auto stream = stream_path(path)) {
    stream_.emplace(*stream, stop, path);
  } else {
    file_.emplace(NewFile::create_output(path, bytes_));
  }
  write_header(count, tensor, header);
}

void SafetensorsWriter::write_header(size_t count,
                                     const std::function<TensorToWrite(size_t)>& tensor,
                                     uint64_t header_bytes) {
  std::string length;
  for (int shift = 0; shift < 64; shift += 8) length += static_cast<char>(header_bytes >> shift);
  put(length);
  put(kBegin);
  each_entry(count, tensor, [&](const std::string& e) { put(e); });
  put(kEnd);
  while (offset_ + filled_ < kHeaderLengthBytes + header_bytes) put(" ");
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (filled_ == block_.size()) flush();
    size_t part = std::min(bytes.size(), block_.size() - filled_);
    std::memcpy(block_.data() + filled_, bytes.data(), part);
    filled_ += part;
    bytes = bytes.subspan(part);
  }
}

void SafetensorsWriter::flush() {
  std::span<const std::byte> full = block_.first(filled_);
  if (file_) file_->write(offset_, full);
  if (stream_) stream_->write({reinterpret_cast<const char*>(full.data()), full.size()});
  offset_ += filled_;
  filled_ = 0;
}

void SafetensorsWriter::finish() {
  flush();
  check(offset_ == bytes_, "the tensors' bytes do not match their shapes");
  if (file_) file_->publish();
}

}  // namespace sluice::io
