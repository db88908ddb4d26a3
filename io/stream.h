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
  // Waits until a FIFO has a reader. Errors are Error(runtime), here and in write(), and say
  // `shown_as` where that is not the path.
  OutputStream(const std::filesystem::path& path, std::stop_token stop,
               const std::filesystem::path& shown_as = {});
  // All of `text`, or an error.
  void write(std::string_view text);

 private:
  std::string name_;
  bool shared_;  // with whoever has the same standard output
  std::stop_token stop_;
  Fd fd_;
};

// Writes `parts`, one after another, as the whole of a file. A regular one appears under its name,
// in place of one that was there, only when it is complete. What is no regular file is opened once
// and written to as it is. Throws Error(runtime).
void write_whole(const std::filesystem::path& path, std::span<const std::string_view> parts,
                 const std::stop_token& stop);
// Throws Error(runtime) where write_whole could not. Changes nothing, and opens nothing that is no
// regular file: the reader of a FIFO would take it for the whole.
void check_writable(const std::filesystem::path& path);

}  // namespace sluice::io
