#include "io/stream.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <system_error>
#include <utility>

#include "io/new_file.h"
#include "io/waiter.h"
#include "src/base/error.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;

// A FIFO without a reader cannot be opened without waiting, and nothing tells when one comes.
Fd open_for_writing(const fs::path& path, const std::string& name, const std::stop_token& stop) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  constexpr int kLookAgain = 20;  // milliseconds
  if (path == "-") {
    Fd fd(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!fd.is_open()) fail_errno(errno, "{}: cannot be written", name);
    return fd;
  }
  const Waiter waiter(stop);
  for (;;) {
    Fd fd(::open(path.c_str(), kFlags, 0666));
    if (fd.is_open()) return fd;
    int error = errno;
    if (error == EINTR) continue;
    std::error_code ignored;
    if (error != ENXIO || !fs::is_fifo(path, ignored))
      fail_errno(error, "{}: cannot be written", name);
    waiter.wait(-1, 0, kLookAgain, name);
  }
}

std::string output_name(const fs::path& path) {
  return path == "-" ? "standard output" : path.string();
}

}  // namespace

OutputStream::OutputStream(const fs::path& path, std::stop_token stop, const fs::path& shown_as)
    : name_(output_name(shown_as.empty() ? path : shown_as)),
      shared_(path == "-"),
      stop_(std::move(stop)),
      fd_(open_for_writing(path, name_, stop_)) {}

void OutputStream::write(std::string_view text) {
  const Waiter waiter(stop_);
  while (!text.empty()) {
    if (shared_) waiter.wait(fd_.get(), POLLOUT, -1, name_);
    // Standard output may block; a pipe that is ready has room for so much.
    size_t most = shared_ ? std::min<size_t>(text.size(), PIPE_BUF) : text.size();
    ssize_t n = ::write(fd_.get(), text.data(), most);
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      waiter.wait(fd_.get(), POLLOUT, -1, name_);
    } else if (errno != EINTR) {
      fail_errno(errno, "{}: cannot be written", name_);
    }
  }
}

std::optional<fs::path> stream_path(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::exists(status) && !fs::is_regular_file(status)) return path;
  if (fs::is_regular_file(status) && fs::equivalent(path, "/dev/stdout", ignored)) return "-";
  return std::nullopt;
}

void write_whole(const fs::path& path, const WriteText& write, const std::stop_token& stop) {
  if (auto stream = stream_path(path)) {
    OutputStream out(*stream, stop, path);
    write([&](std::string_view piece) { out.write(piece); });
    return;
  }
  uint64_t bytes = 0;
  write([&](std::string_view piece) { bytes += piece.size(); });
  NewFile file = NewFile::create_output(path, bytes);
  uint64_t offset = 0;
  write([&](std::string_view piece) {
    file.write(offset, std::as_bytes(std::span(piece)));
    offset += piece.size();
  });
  check(offset == bytes, "a text is the same each time that it is written");
  file.publish();
}

void check_writable(const fs::path& path) {
  std::error_code ignored;
  bool exists = fs::exists(path, ignored);
  if (exists && faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0)
    fail_errno(errno, "{}: cannot be written", path.string());
  if (fs::is_directory(path, ignored)) fail_errno(EISDIR, "{}: cannot be written", path.string());
  if (!stream_path(path)) NewFile::create_output(path, 0);
}

}  // namespace sluice::io
