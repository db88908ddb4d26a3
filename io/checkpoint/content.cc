#include "io/checkpoint/content.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <utility>

#include "io/checkpoint/npy.h"
#include "io/checkpoint/safetensors.h"
#include "io/checkpoint/torch.h"
#include "io/checkpoint/zip_directory.h"
#include "src/base/error.h"

namespace sluice::io {

std::string_view guess_content(std::string_view first_bytes) {
  constexpr std::string_view kMarkup = "; it looks like HTML or XML, such as a saved error page";
  constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kKnown{{
      {"version https://git-lfs", "; it is a Git LFS pointer: fetch the file with 'git lfs pull'"},
      {"<!", kMarkup},
      {"<?xml", kMarkup},
      {"<html", kMarkup},
      {"{\"", "; it looks like JSON text"},
      {"GGUF", "; it is a GGUF file"},
      {"PK\x03\x04", "; it is a ZIP archive, such as a PyTorch checkpoint"},
      {"\x80\x02", "; it looks like a Python pickle, such as a PyTorch checkpoint"},
      {"\x1f\x8b", "; it is a gzip archive"},
  }};
  for (auto [prefix, guess] : kKnown) {
    if (first_bytes.starts_with(prefix)) return guess;
  }
  return "";
}

namespace {

bool is_zip(std::string_view first) {
  return first.starts_with("PK\x03\x04") || first.starts_with("PK\x05\x06");
}

std::vector<StoredTensor> read_archive(const Fd& fd, const CheckpointFile& file,
                                       const std::string& where) {
  const std::vector<ZipMember> members = read_zip_directory(fd, file, where);
  return is_npz(members) && !is_torch_archive(members)
             ? read_npz(fd, file, members, where)
             : read_torch_archive(fd, file, members, where);
}

}  // namespace

TensorFile read_tensor_file(const std::filesystem::path& path, std::string name) {
  constexpr std::string_view kPickle = "\x80";
  constexpr size_t kLengthBytes = 8;  // before the header of a safetensors file
  Fd fd = open_resolved(path);
  posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);
  TensorFile result{.file = describe_file(fd, path, std::move(name)), .tensors = {}};
  const std::string where = printable(path.string());
  std::string first(std::min<uint64_t>(result.file.size, 64), '\0');
  read_exactly(fd, path, 0, first);
  if (is_zip(first)) {
    result.tensors = read_archive(fd, result.file, where);
  } else if (first.size() > kLengthBytes && first[kLengthBytes] == '{') {
    return read_safetensors_header(path, std::move(result.file.name));
  } else if (const std::string_view guess = guess_content(first);
             !guess.empty() && !first.starts_with(kPickle)) {
    fail(ErrorKind::refused, "{}: is no file of tensors{}", where, guess);
  } else {
    result.tensors = read_torch_stream(fd, result.file, where);
  }
  std::ranges::sort(result.tensors, [](const StoredTensor& a, const StoredTensor& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  return result;
}

}  // namespace sluice::io
