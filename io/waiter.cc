#include "io/waiter.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>

#include "src/base/error.h"

namespace sluice::io {

void Waiter::Wake::operator()() const { eventfd_write(fd, 1); }

Waiter::Waiter(const std::stop_token& stop)
    : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), callback_(stop, Wake{wake_.get()}) {}

void Waiter::wait(int fd, short events, int milliseconds, const std::string& name) const {
  std::array<pollfd, 2> files{{{fd, events, 0}, {wake_.get(), POLLIN, 0}}};
  if (poll(files.data(), files.size(), milliseconds) < 0 && errno != EINTR)
    fail_errno(errno, "{}: cannot be waited for", name);
  if (files[0].revents == 0 && files[1].revents != 0)
    fail(ErrorKind::runtime, "interrupted while waiting for {}", name);
}

bool try_again(int error) { return error == EAGAIN || error == EINTR; }

}  // namespace sluice::io
