#include "io/checkpoint/places.h"

#include <array>
#include <system_error>

namespace sluice::io {
namespace {

namespace fs = std::filesystem;

// The first file in `folder` that a download tool has not finished, or empty.
fs::path unfinished_file(const fs::path& folder) {
  constexpr std::array<std::string_view, 5> kEndings{".incomplete", ".part", ".partial", ".aria2",
                                                     ".crdownload"};
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    std::string extension = entry.path().extension().string();
    if (std::find(kEndings.begin(), kEndings.end(), extension) != kEndings.end()) {
      return entry.path();
    }
  }
  return {};
}

}  // namespace

std::string download_hint(const fs::path& directory) {
  // The Hugging Face client keeps here what it is about to write into `directory`, and what a
  // snapshot in its cache will link to.
  std::vector<fs::path> folders{directory, directory / ".cache/huggingface/download"};
  std::error_code error;
  fs::path snapshots = fs::canonical(directory, error).parent_path();
  if (snapshots.filename() == "snapshots") folders.push_back(snapshots.parent_path() / "blobs");
  for (const fs::path& folder : folders) {
    if (fs::path file = unfinished_file(folder); !file.empty()) {
      return fmt::format(" (the download is not finished: there is {})",
                         printable(file.filename().string()));
    }
  }
  return "";
}

bool is_absent(const fs::path& path) {
  std::error_code error;
  return !fs::exists(path, error) && (!error || error == std::errc::no_such_file_or_directory);
}

bool Places::same_tensors(std::span<const StoredTensor> a, std::span<const StoredTensor> b) {
  return std::ranges::equal(a, b, [](const StoredTensor& x, const StoredTensor& y) {
    return x.name == y.name && x.dtype == y.dtype && x.offset == y.offset && x.bytes == y.bytes;
  });
}

}  // namespace sluice::io
