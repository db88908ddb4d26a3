#include "io/checkpoint/read_tensors.h"

#include <fcntl.h>

#include <algorithm>

#include "io/joined_file.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

using Tensors = std::span<const StoredTensor* const>;

Fd open_unchanged(const CheckpointFile& file) {
  Fd fd = open_resolved(file.path);
  if (!is_unchanged(describe_file(fd, file.path, file.name), file)) fail_changed(file.path);
  // Without read-ahead only what is asked for enters the page cache.
  posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);
  return fd;
}

void drop(const Fd& fd, uint64_t offset, uint64_t bytes) {
  posix_fadvise(fd.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                POSIX_FADV_DONTNEED);
}

std::vector<std::string> read_from(const CheckpointFile& file, Tensors tensors) {
  const OpenBytes open(file);
  std::vector<std::string> all;
  for (const StoredTensor* tensor : tensors)
    open.read(tensor->offset, all.emplace_back(tensor->bytes, '\0'));
  return all;
}

// All of one file.
std::vector<std::string> read_file_or_copy(const CheckpointIndex& index, Tensors tensors) {
  uint32_t number = tensors.front()->file;
  const CheckpointFile* file = &index.files()[number];
  for (const FileCopy& copy : index.copies()) {
    if (copy.of != number) continue;
    try {
      return read_from(*file, tensors);
    } catch (const Error& e) {
      log::warning("{}; a copy of it is read instead", e.what());
      file = &copy.file;
    }
  }
  return read_from(*file, tensors);
}

}  // namespace

OpenBytes::OpenBytes(const CheckpointFile& file) : file_(file) {
  if (file.joined == nullptr) {
    fds_.push_back(open_unchanged(file));
    return;
  }
  for (const CheckpointFile& part : file.joined->parts) fds_.push_back(open_unchanged(part));
}

void OpenBytes::read(uint64_t offset, std::span<char> to) const {
  if (file_.joined == nullptr) {
    read_exactly(fds_.front(), file_.path, offset, to);
    drop(fds_.front(), offset, to.size());
    return;
  }
  scatter(*file_.joined, offset, std::as_writable_bytes(to), [&](const Scatter& read) {
    uint64_t bytes = 0;
    for (const iovec& place : read.to) bytes += place.iov_len;
    const Fd& fd = fds_[read.part];
    read_scattered(read, fd.get(), printable(file_.joined->parts[read.part].path.string()),
                   system_calls());
    drop(fd, read.offset, bytes);
  });
}

bool same_contents(const CheckpointIndex& index, const StoredTensor& a, const StoredTensor& b) {
  constexpr uint64_t kChunk = uint64_t{1} << 20;
  if (a.dtype != b.dtype || a.shape != b.shape || a.column_major != b.column_major) return false;
  for (uint64_t at = 0; at < a.bytes; at += kChunk) {
    StoredTensor of_a = a, of_b = b;
    of_a.offset += at;
    of_b.offset += at;
    of_a.bytes = of_b.bytes = std::min(kChunk, a.bytes - at);
    const std::vector<const StoredTensor*> both{&of_a, &of_b};
    std::vector<std::string> bytes = read_tensors(index, both);
    if (bytes[0] != bytes[1]) return false;
  }
  return true;
}

std::vector<std::string> read_tensors(const CheckpointIndex& index, Tensors tensors) {
  std::vector<std::string> all;
  while (!tensors.empty()) {
    uint32_t file = tensors.front()->file;
    auto end = std::ranges::find_if(tensors, [&](const auto* t) { return t->file != file; });
    Tensors here = tensors.first(static_cast<size_t>(end - tensors.begin()));
    for (std::string& bytes : read_file_or_copy(index, here)) all.push_back(std::move(bytes));
    tensors = tensors.subspan(here.size());
  }
  return all;
}

std::vector<std::string> read_small_tensors(const CheckpointIndex& index, Tensors tensors) {
  constexpr uint64_t kMostEach = 64 * KiB, kMostTogether = 16 * MiB;
  uint64_t together = 0;
  for (const StoredTensor* t : tensors) {
    together += t->bytes;
    if (t->bytes <= kMostEach && together <= kMostTogether) continue;
    fail(ErrorKind::refused,
         "{}: tensor {}: has {}; of what is read before planning a tensor may "
         "have {}, and all {}",
         printable(index.files()[t->file].path.string()), printable(t->name), format_size(t->bytes),
         format_size(kMostEach), format_size(kMostTogether));
  }
  return read_tensors(index, tensors);
}

}  // namespace sluice::io
