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

bool is_stream(const fs::path& path) {
  std::error_code ignored;
  fs::file_status status = fs::status(path, ignored);
  return fs::exists(status) && !fs::is_regular_file(status);
}

// A regular file that stdout goes to: not to be replaced by another.
bool is_stdout(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && fs::equivalent(path, "/dev/stdout", ignored);
}

std::string output_name(const fs::path& path) {
  return path == "-" ? "standard output" : path.string();
}

// Where a file is until it is complete. A link stays, and what it links to changes.
struct Part {
  explicit Part(const fs::path& file) {
    std::error_code error;
    target = fs::weakly_canonical(file, error);
    if (error) target = file;
    path = target;
    path += fmt::format(".part-{}", getpid());
    fs::remove(path, error);
  }
  ~Part() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;

  fs::path target;
  fs::path path;
};

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

void write_whole(const fs::path& path, std::span<const std::string_view> parts,
                 const std::stop_token& stop) {
  auto write_parts = [&](const fs::path& to) {
    OutputStream out(to, stop, path);
    for (std::string_view part : parts) out.write(part);
  };
  if (is_stdout(path)) return write_parts("-");
  if (is_stream(path)) return write_parts(path);
  const Part part(path);
  write_parts(part.path);
  std::error_code error;
  fs::rename(part.path, part.target, error);
  if (error) fail_errno(error.value(), "{}: cannot be written", path.string());
}

void check_writable(const fs::path& path) {
  std::error_code ignored;
  bool exists = fs::exists(path, ignored);
  if (exists && faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0)
    fail_errno(errno, "{}: cannot be written", path.string());
  if (fs::is_directory(path, ignored)) fail_errno(EISDIR, "{}: cannot be written", path.string());
  if (!is_stream(path) && !is_stdout(path)) OutputStream(Part(path).path, {}, path);
}

}  // namespace sluice::io
