#include "io/input_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::io {
namespace {

const dev_t kNull = makedev(1, 3);  // /dev/null

}  // namespace

InputStream::InputStream(const std::filesystem::path& path, std::string name,
                         const std::stop_token& stop)
    : name_(std::move(name)), stop_(stop), waiter_(std::make_unique<Waiter>(stop)) {
  constexpr int kFlags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  fd_ = Fd(path == "-" ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) : ::open(path.c_str(), kFlags));
  struct stat status{};
  if (!fd_.is_open() || fstat(fd_.get(), &status) != 0)
    fail(ErrorKind::usage, "{}: cannot be read: {}", name_, errno_text(errno));
  if (S_ISDIR(status.st_mode))
    fail(ErrorKind::usage, "{}: cannot be read: {}", name_, errno_text(EISDIR));
  bool ends = isatty(fd_.get()) == 1 || status.st_rdev == kNull;
  if (S_ISBLK(status.st_mode) || (S_ISCHR(status.st_mode) && !ends))
    fail(ErrorKind::refused, "{}: is a device, but must be a file, a pipe or a terminal", name_);
  regular_ = S_ISREG(status.st_mode);
  if (regular_) offset_ = lseek(fd_.get(), 0, SEEK_CUR);
}

std::string_view InputStream::read() {
  piece_.resize(kPiece);
  for (;;) {
    // First, as a FIFO without a writer would be at its end.
    if (!regular_) waiter_->wait(fd_.get(), POLLIN, -1, name_);
    ssize_t n = ::read(fd_.get(), piece_.data(), piece_.size());
    if (n < 0 && !try_again(errno)) fail_errno(errno, "{}: cannot be read", name_);
    if (stop_.stop_requested()) fail(ErrorKind::runtime, "interrupted while reading {}", name_);
    if (n < 0) continue;
    if (regular_) posix_fadvise(fd_.get(), offset_, n, POSIX_FADV_DONTNEED);
    offset_ += n;
    return std::string_view(piece_).substr(0, static_cast<size_t>(n));
  }
}

bool LineStream::next(std::string& line, const std::string& where) {
  line.clear();
  for (bool any = false;; any = true) {
    if (rest_.empty()) rest_ = input_.read();
    if (rest_.empty()) return any;
    size_t end = rest_.find('\n');
    line += rest_.substr(0, end);
    if (line.size() > longest_) {
      fail(ErrorKind::refused, "{}: is longer than {}, the most of a line", where,
           format_size(longest_));
    }
    rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
    if (end != std::string_view::npos) return true;
  }
}

}  // namespace sluice::io
