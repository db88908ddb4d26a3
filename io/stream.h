// Files that may be pipes, terminals or devices. Whoever waits for their other end is woken by a
// stop request.
#pragma once

#include <filesystem>
#include <stop_token>
#include <string>
#include <string_view>

#include "io/file.h"

namespace sluice::io {

// All that `path` gives until its end; "-" is standard input. Throws Error(refused) where it cannot
// be opened or read, Error(runtime) when `stop` is requested while it waits.
std::string read_stream(const std::filesystem::path& path, const std::stop_token& stop);

// Adds to what `path` names, which is made where it is missing; "-" is standard output.
class OutputStream {
 public:
  // Waits until a FIFO has a reader. Errors are Error(runtime), here and in write().
  OutputStream(std::filesystem::path path, std::stop_token stop);
  // All of `text`, or an error.
  void write(std::string_view text);

 private:
  std::string name_;
  std::stop_token stop_;
  Fd fd_;
};

}  // namespace sluice::io
