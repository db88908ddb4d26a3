// A new directory of a model's files, which appears under its name when all are written.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "io/file.h"
#include "io/model_directory.h"
#include "src/base/json.h"

namespace sluice {

class OutputDirectory {
 public:
  // Makes DIRECTORY.part, where files are written; `directory` must not be there, or be empty.
  // `request`: identifies what is written. What an interrupted process left of the same request is
  // used again, and without an end left for another; empty: nothing is kept. Error(usage) where
  // the directory is there, Error(refused) where another request has left its part, or another
  // process writes it, Error(runtime) where it cannot be made.
  OutputDirectory(std::filesystem::path directory, std::string request);
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

// Copies the files of a model's directory that are no weights: tokenizer, templates, code and
// configs. `config`: the text of config.json in place of the one that is there; empty: the same.
void copy_other_files(const io::ModelDirectory& from, const OutputDirectory& to,
                      const std::string& config = {});

}  // namespace sluice
