// Places of a checkpoint's files: its own directory, and others that have some of them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/checkpoint/index.h"
#include "src/base/error.h"

namespace sluice::io {

// For the end of a sentence that says what is missing in `directory`: that a download is not
// finished, or nothing.
std::string download_hint(const std::filesystem::path& directory);

// A link that leads nowhere, as a cache has before the file arrives, does not count as a file; one
// that cannot be followed at all does, and is left to ModelDirectory::resolve.
bool is_absent(const std::filesystem::path& path);

class Places {
 public:
  Places(const ModelDirectory& directory, std::span<const std::filesystem::path> mirrors)
      : all_{directory} {
    for (const std::filesystem::path& mirror : mirrors)
      all_.emplace_back(mirror, directory.outside_links());
  }
  const ModelDirectory& directory() const { return all_.front(); }
  const std::filesystem::path& own() const { return directory().path(); }

  bool lack(const std::string& name) const {
    return std::ranges::all_of(all_, [&](const auto& d) { return is_absent(d.path() / name); });
  }
  // The header of the first file of that name, as `read_header` gives it; there is one. The others
  // must agree with it and become copies of file `number`.
  template <class Header>
  Header read(const std::string& name, uint32_t number, std::vector<FileCopy>& copies,
              Header (*read_header)(const std::filesystem::path&, std::string)) const {
    std::optional<Header> first;
    for (const ModelDirectory& directory : all_) {
      if (is_absent(directory.path() / name)) continue;
      Header header = read_header(directory.resolve(name), name);
      if (!first) {
        first = std::move(header);
        continue;
      }
      if (first->file.size != header.file.size || !same_tensors(first->tensors, header.tensors)) {
        fail(ErrorKind::refused, "{}: is not a copy of {}: their headers differ",
             printable(header.file.path.string()), printable(first->file.path.string()));
      }
      copies.push_back({number, std::move(header.file)});
    }
    check(first.has_value(), "a file that is somewhere");
    return std::move(*first);
  }

 private:
  static bool same_tensors(std::span<const StoredTensor> a, std::span<const StoredTensor> b);

  std::vector<ModelDirectory> all_;
};

}  // namespace sluice::io
