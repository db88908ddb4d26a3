// A new directory of a model's files, which appears under its name when all are written.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "io/model_directory.h"
#include "src/base/json.h"

namespace sluice {

class OutputDirectory {
 public:
  // Makes DIRECTORY.part, where files are written; `directory` must not be there, or be empty, and
  // links that lead to it stay. `model`: where the files are made from. `request`: identifies what
  // is written. What an interrupted process left of the same request is used again, and without an
  // end left for another; empty: nothing is kept. Error(usage) where the directory is there, is a
  // mount point or the working directory, or the model lies in its part; Error(refused) where
  // another request has left its part, or another process writes it; Error(runtime) where it cannot
  // be made.
  OutputDirectory(const std::filesystem::path& directory, const std::filesystem::path& model,
                  std::string request);
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;
  ~OutputDirectory();

  // The directory until it is published.
  const std::filesystem::path& path() const { return part_; }

  // The checksum of a file that was finished, by this process or one before it.
  std::optional<std::string> finished(const std::string& file) const;
  void note_finished(const std::string& file, const std::string& checksum);
  void forget(const std::string& file);

  // Makes all files durable under the directory's name. Once.
  void publish();

 private:
  void save() const;

  std::filesystem::path directory_, part_;
  std::string request_;
  io::Fd lock_;
  Json finished_ = Json::object();
  bool is_published_ = false;
};

// Writes a whole file; it is durable when this returns.
void write_small_file(const std::filesystem::path& path, std::string_view text);

// A file of a model that has no weights: of its tokenizer, templates, code and configs.
struct OtherFile {
  std::string name;              // relative to the model's directory
  std::filesystem::path source;  // of ModelDirectory::resolve()
};

// Such files of a model and of the directories in it, without config.json. Error(refused) as of
// ModelDirectory::resolve(), Error(runtime) where a directory cannot be read.
std::vector<OtherFile> other_files(const io::ModelDirectory& model);

// Copies the files, and writes config.json last. `block`: for what is copied. What is written is
// durable when the directory is published.
void copy_other_files(std::span<const OtherFile> files, const OutputDirectory& to,
                      std::string_view config, std::span<std::byte> block);

}  // namespace sluice
