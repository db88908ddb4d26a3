#include "io/checkpoint/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

#include "io/file.h"
#include "src/base/error.h"
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

void write_all(const Fd& fd, std::span<const std::byte> bytes, const fs::path& path) {
  while (!bytes.empty()) {
    ssize_t n = write(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno(errno, "{}: cannot be written", printable(path.string()));
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void write_to(const fs::path& path, const fs::path& shown_as, int flags,
              std::span<const TensorToWrite> tensors) {
  Fd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666));
  if (!fd.is_open()) fail_errno(errno, "{}: cannot be created", printable(shown_as.string()));
  std::vector<const TensorToWrite*> order = data_order(tensors);
  std::string header = header_of(order);
  write_all(fd, std::as_bytes(std::span(header)), shown_as);
  for (const TensorToWrite* tensor : order) write_all(fd, tensor->bytes, shown_as);
}

}  // namespace

void write_safetensors(const fs::path& path, std::span<const TensorToWrite> tensors) {
  for (const TensorToWrite& tensor : tensors) {
    std::optional<int64_t> elements = tensor.shape.elements();
    check(elements &&
              static_cast<uint64_t>(*elements) * static_cast<uint64_t>(dtype_bytes(tensor.dtype)) ==
                  tensor.bytes.size(),
          "tensor's bytes do not match its shape");
  }
  std::error_code error;
  fs::file_status status = fs::status(path, error);
  if (fs::exists(status) && !fs::is_regular_file(status)) return write_to(path, path, 0, tensors);

  fs::path target = fs::weakly_canonical(path, error);  // a link stays, what it links to changes
  if (error) target = path;
  fs::path temporary = target;
  temporary += fmt::format(".part-{}", getpid());
  try {
    write_to(temporary, path, O_CREAT | O_TRUNC, tensors);
    fs::rename(temporary, target, error);
    if (error) fail_errno(error.value(), "{}: cannot be created", printable(path.string()));
  } catch (...) {
    fs::remove(temporary, error);
    throw;
  }
}

}  // namespace sluice::io
