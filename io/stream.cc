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

#include "io/waiter.h"
#include "src/base/error.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;

// A FIFO without a reader cannot be opened without waiting, and nothing tells when one comes.
Fd open_for_writing(const fs::path& path, const std::stop_token& stop) {
  if (path == "-") {
    Fd fd(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!fd.is_open()) fail_errno(errno, "standard output: cannot be written");
    return fd;
  }
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  constexpr int kLookAgain = 20;  // milliseconds
  const Waiter waiter(stop);
  for (;;) {
    Fd fd(::open(path.c_str(), kFlags, 0666));
    if (fd.is_open()) return fd;
    int error = errno;
    if (error == EINTR) continue;
    std::error_code ignored;
    if (error != ENXIO || !fs::is_fifo(path, ignored))
      fail_errno(error, "{}: cannot be written", path.string());
    waiter.wait(-1, 0, kLookAgain, path.string());
  }
}

}  // namespace

std::string read_stream(const fs::path& path, const std::stop_token& stop) {
  const std::string name = path == "-" ? "standard input" : path.string();
  auto refuse = [&](int error) {
    fail(ErrorKind::refused, "{}: cannot be read: {}", name, errno_text(error));
  };
  Fd fd(path == "-" ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                    : ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!fd.is_open()) refuse(errno);
  const Waiter waiter(stop);
  std::string text;
  std::array<char, 1 << 16> part;
  for (;;) {
    // First, as a FIFO without a writer would be at its end.
    waiter.wait(fd.get(), POLLIN, -1, name);
    ssize_t n = ::read(fd.get(), part.data(), part.size());
    if (n == 0) return text;
    if (n < 0 && !try_again(errno)) refuse(errno);
    if (stop.stop_requested()) fail(ErrorKind::runtime, "interrupted while reading {}", name);
    if (n > 0) text.append(part.data(), static_cast<size_t>(n));
  }
}

OutputStream::OutputStream(fs::path path, std::stop_token stop)
    : name_(path == "-" ? "standard output" : path.string()),
      stop_(std::move(stop)),
      fd_(open_for_writing(path, stop_)) {}

void OutputStream::write(std::string_view text) {
  const Waiter waiter(stop_);
  while (!text.empty()) {
    // Standard output is shared, and may block: a pipe that is ready has room for so much.
    waiter.wait(fd_.get(), POLLOUT, -1, name_);
    ssize_t n = ::write(fd_.get(), text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (!try_again(errno)) {
      fail_errno(errno, "{}: cannot be written", name_);
    }
  }
}

}  // namespace sluice::io
