// A file, pipe or terminal that is read as it comes, and never held as a whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "io/file.h"
#include "io/waiter.h"

namespace sluice::io {

class InputStream {
 public:
  static constexpr size_t kPiece = 4 << 10;  // bytes, at most, that are read at a time

  // "-" is standard input. Errors begin with `name`: Error(usage) where it cannot be opened or is a
  // directory, Error(refused) for a device, which may have no end; terminals and /dev/null have
  // one.
  InputStream(const std::filesystem::path& path, std::string name, const std::stop_token& stop);

  // Returns the next piece, valid until the next call; empty at the end. Waits for a pipe's writer,
  // unless `stop` is requested: Error(runtime). A regular file that is read does not stay in the
  // page cache.
  std::string_view read();

  bool is_regular() const { return regular_; }
  const Fd& fd() const { return fd_; }
  Fd take_fd() { return std::move(fd_); }

 private:
  std::string name_;
  std::stop_token stop_;
  std::unique_ptr<Waiter> waiter_;
  Fd fd_;
  bool regular_ = false;
  std::string piece_;
  int64_t offset_ = 0;  // in a regular file
};

// The lines of a stream, of which none may be longer than `longest` bytes.
class LineStream {
 public:
  LineStream(InputStream input, size_t longest) : input_(std::move(input)), longest_(longest) {}

  // The next line without its end; false: there is none. Throws Error(refused) for one that is too
  // long.
  bool next(std::string& line, const std::string& where);

 private:
  InputStream input_;
  size_t longest_;
  std::string_view rest_;  // of the piece that was read last
};

}  // namespace sluice::io
