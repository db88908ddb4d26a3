// The directory of a model. Its files come from a stranger, and so may its symbolic links: what is
// opened because it lies there, or because a file there names it, lies within it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace sluice::io {

// Says whether links may lead out of a model's directory (--allow-outside-links).
enum class OutsideLinks : uint8_t { refused, allowed };

class ModelDirectory {
 public:
  // `path` itself may be a link, because the user names it.
  ModelDirectory(std::filesystem::path path, OutsideLinks outside = OutsideLinks::refused)
      : path_(std::move(path)), outside_(outside) {}
  // The directory of a file that the user names, which may itself be a link to anywhere.
  static ModelDirectory of_file(const std::filesystem::path& file,
                                OutsideLinks outside = OutsideLinks::refused);

  const std::filesystem::path& path() const { return path_; }
  OutsideLinks outside_links() const { return outside_; }

  // The path of a file without symbolic links, to be opened by open_resolved(). It lies within the
  // directory, or where this is a snapshot in the hub's cache, among the cache's blobs. A `name`
  // that comes from a file is checked by who reads that file. Throws Error(refused) where it lies
  // elsewhere, and where there is no such file.
  std::filesystem::path resolve(std::string_view name) const;
  // The whole text of a file of at most `max_bytes`. Errors as resolve() and read_small_file().
  std::string read(std::string_view name, uint64_t max_bytes) const;

 private:
  std::filesystem::path path_;
  OutsideLinks outside_;
  std::string named_;  // of_file()'s
};

// A file of a model: in a directory, or one that the user names.
struct ModelFile {
  ModelFile(const std::filesystem::path& file, OutsideLinks outside = OutsideLinks::refused)
      : directory(ModelDirectory::of_file(file, outside)), name(file.filename().string()) {}
  ModelFile(ModelDirectory in, std::string file)
      : directory(std::move(in)), name(std::move(file)) {}

  std::filesystem::path path() const { return directory.path() / name; }

  ModelDirectory directory;
  std::string name;
};

}  // namespace sluice::io
