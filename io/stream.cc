#include "io/stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <system_error>
#include <utility>

#include "src/base/error.h"

namespace sluice::io {
namespace {

namespace fs = std::filesystem;

// Waits for a file, or for a stop request.
class Waiter {
 public:
  explicit Waiter(const std::stop_token& stop)
      : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), callback_(stop, Wake{wake_.get()}) {}

  // Until `fd` has one of `events`, or so many milliseconds (-1: for ever) have passed. `fd` may be
  // -1: only time passes. Throws Error(runtime) where a stop request ends it.
  void wait(int fd, short events, int milliseconds, const std::string& name) const {
    std::array<pollfd, 2> files{{{fd, events, 0}, {wake_.get(), POLLIN, 0}}};
    if (poll(files.data(), files.size(), milliseconds) < 0 && errno != EINTR)
      fail_errno(errno, "{}: cannot be waited for", name);
    if (files[0].revents == 0 && files[1].revents != 0)
      fail(ErrorKind::runtime, "interrupted while waiting for {}", name);
  }

 private:
  struct Wake {
    int fd;
    void operator()() const { eventfd_write(fd, 1); }
  };

  Fd wake_;
  std::stop_callback<Wake> callback_;
};

bool try_again(int error) { return error == EAGAIN || error == EINTR; }

[[noreturn]] void refuse_errno(int error, const std::string& name) {
  fail(ErrorKind::refused, "{}: cannot be read: {}", name, errno_text(error));
}

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

InputStream::InputStream(const fs::path& path, std::stop_token stop)
    : name_(path == "-" ? "standard input" : path.string()),
      stop_(std::move(stop)),
      fd_(path == "-" ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                      : ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {
  if (!fd_.is_open()) refuse_errno(errno, name_);
}

size_t InputStream::read(std::span<char> to) {
  const Waiter waiter(stop_);
  for (;;) {
    // First, as a FIFO without a writer would be at its end.
    waiter.wait(fd_.get(), POLLIN, -1, name_);
    ssize_t n = ::read(fd_.get(), to.data(), to.size());
    if (n < 0 && !try_again(errno)) refuse_errno(errno, name_);
    if (n != 0 && stop_.stop_requested())
      fail(ErrorKind::runtime, "interrupted while reading {}", name_);
    if (n >= 0) return static_cast<size_t>(n);
  }
}

std::string read_stream(const fs::path& path, const std::stop_token& stop) {
  InputStream in(path, stop);
  std::string text;
  std::array<char, 1 << 16> part;
  while (size_t n = in.read(part)) text.append(part.data(), n);
  return text;
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
