// Output to files that may be pipes, terminals or devices. A stop request ends the wait for their
// reader.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "io/file.h"

namespace sluice::io {

// Appends to the file `path`, which is created if missing; "-" is standard output.
class OutputStream {
 public:
  // Waits until a FIFO has a reader. Errors are Error(runtime), here and in write(), and say
  // `shown_as` where that is not the path.
  OutputStream(const std::filesystem::path& path, std::stop_token stop,
               const std::filesystem::path& shown_as = {});
  // All of `text`, or an error.
  void write(std::string_view text);

 private:
  std::string name_;
  bool shared_;  // with other holders of the same standard output
  std::stop_token stop_;
  Fd fd_;
};

// Returns an output that must not be replaced by a new file: `path` itself if it is no regular
// file, "-" if standard output goes to it. nullopt for a regular or missing file.
std::optional<std::filesystem::path> stream_path(const std::filesystem::path& path);

// Passes a text to its argument, piece after piece.
using WriteText = std::function<void(const std::function<void(std::string_view)>& take)>;
// Writes a whole file, of the texts that `write` passes on. A regular file appears under its name,
// in place of an earlier one, only when it is complete; for it `write` is called twice with the
// same result, first to count the bytes. Other files are opened once and written to as they are.
// Throws Error(runtime).
void write_whole(const std::filesystem::path& path, const WriteText& write,
                 const std::stop_token& stop);
// Throws Error(runtime) where write_whole could not. Changes nothing, and opens nothing that is no
// regular file: the reader of a FIFO would take it for the whole.
void check_writable(const std::filesystem::path& path);

}  // namespace sluice::io
