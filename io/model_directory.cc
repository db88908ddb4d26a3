#include "io/model_directory.h"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "io/file.h"
#include "src/base/error.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;

fs::path without_links(const fs::path& path) {
  std::error_code error;
  fs::path real = fs::canonical(path, error);
  if (error) {
    fail(ErrorKind::refused, "{}: cannot be opened: {}", printable(path.string()), error.message());
  }
  return real;
}

bool is_within(const fs::path& path, const fs::path& directory) {
  return std::ranges::mismatch(directory, path).in1 == directory.end();
}

// Returns whether the target is a blob of the repository REPOSITORY/snapshots/REVISION that
// `directory` is, or is in. A cache of huggingface_hub 2 may have the blobs of all its repositories
// in one place, and says so by a file there.
bool is_blob_of(const fs::path& target, const fs::path& directory) {
  constexpr std::string_view kSnapshots = "snapshots", kBlobs = "blobs",
                             kSharedMark = ".huggingface-shared-blobs";
  for (fs::path at = directory; at.has_relative_path(); at = at.parent_path()) {
    if (at.parent_path().filename() != kSnapshots) continue;
    const fs::path repository = at.parent_path().parent_path();
    const fs::path shared = repository.parent_path() / kBlobs;
    std::error_code absent;
    return is_within(target, repository / kBlobs) ||
           (is_within(target, shared) && fs::is_regular_file(shared / kSharedMark, absent));
  }
  return false;
}

}  // namespace

ModelDirectory ModelDirectory::of_file(const fs::path& file, OutsideLinks outside) {
  ModelDirectory directory(file.has_parent_path() ? file.parent_path() : fs::path("."), outside);
  directory.named_ = file.filename().string();
  return directory;
}

fs::path ModelDirectory::resolve(std::string_view name) const {
  fs::path target = without_links(path_ / name);
  if (outside_ == OutsideLinks::allowed || name == named_) return target;
  const fs::path directory = without_links(path_);
  if (!is_within(target, directory) && !is_blob_of(target, directory)) {
    fail(ErrorKind::refused,
         "{}: a symbolic link leads to {}, which is outside of the model's directory; if you trust "
         "the links, give --allow-outside-links",
         printable((path_ / name).string()), printable(target.string()));
  }
  return target;
}

std::string ModelDirectory::read(std::string_view name, uint64_t max_bytes) const {
  return read_small_file(open_resolved(resolve(name)), path_ / name, max_bytes);
}

}  // namespace sluice::io
