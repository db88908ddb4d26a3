// Files that may be pipes, terminals or devices. Whoever waits for their other end is woken by a
// stop request.
#pragma once

#include <filesystem>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "io/file.h"

namespace sluice::io {

// What `path` gives, one piece after another; "-" is standard input.
class InputStream {
 public:
  // Error(refused) where it cannot be opened.
  InputStream(const std::filesystem::path& path, std::stop_token stop);
  // Waits for the next piece: how much of `to` it has filled; 0: the end. Throws Error(refused)
  // where it cannot be read, Error(runtime) when `stop` is requested.
  size_t read(std::span<char> to);
  const std::string& name() const { return name_; }
  const Fd& fd() const { return fd_; }
  Fd take_fd() { return std::move(fd_); }

 private:
  std::string name_;
  std::stop_token stop_;
  Fd fd_;
};

// All of it until its end.
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
