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

void write_whole(const fs::path& path, std::span<const std::string_view> parts,
                 const std::stop_token& stop) {
  auto write_parts = [&](const fs::path& to) {
    OutputStream out(to, stop, path);
    for (std::string_view part : parts) out.write(part);
  };
  if (auto stream = stream_path(path)) return write_parts(*stream);
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
  if (!stream_path(path)) OutputStream(Part(path).path, {}, path);
}

}  // namespace sluice::io
