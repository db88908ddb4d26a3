#include "src/cli/signals.h"

#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdlib>
#include <initializer_list>

#include "src/base/thread.h"

namespace sluice::cli {
namespace {

// timeout(1), and others, signal the process and then its group, which comes here as two.
constexpr std::chrono::milliseconds kSameRequest{200};

sigset_t set_of(std::initializer_list<int> signals) {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : signals) sigaddset(&set, signal);
  return set;
}

// Ends the process as the signal's default action does, on any thread.
[[noreturn]] void end_by(int signal) {
  const sigset_t set = set_of({signal});
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  raise(signal);
  std::_Exit(128 + signal);
}

}  // namespace

void prepare_process() {
  // Blocks of this size go back to the system when they are freed, so that a peak is the sum of
  // what is held at one time. Without this the allocator raises the bound as it goes.
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // open() takes the lowest that is free, which is this one.
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
  ::signal(SIGXFSZ, SIG_IGN);
}

SignalWatch::Interrupts::Interrupts(SignalWatch& watch)
    : watch_(watch), inner_(watch.taken_.exchange(true)) {}

SignalWatch::Interrupts::~Interrupts() {
  if (inner_) return;
  watch_.taken_ = false;
  forget();
}

bool SignalWatch::Interrupts::came() const {
  pollfd wake{watch_.wake_, POLLIN, 0};
  return watch_.received_ == 0 && poll(&wake, 1, 0) > 0;
}

void SignalWatch::Interrupts::forget() {
  uint64_t woken = 0;
  while (::read(watch_.wake_, &woken, sizeof(woken)) > 0 && watch_.received_ == 0) {
  }
}

void SignalWatch::wake() const {
  constexpr uint64_t kOne = 1;
  if (::write(wake_, &kOne, sizeof(kOne)) < 0) return;  // it is full, and wakes all the same
}

SignalWatch::SignalWatch()
    : signals_(set_of({SIGINT, SIGTERM, SIGUSR1, SIGUSR2})), printing_(pthread_self()) {
  // A shell starts what runs in the background with SIGINT ignored.
  for (int signal : {SIGINT, SIGTERM}) ::signal(signal, SIG_DFL);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);  // inherited by every thread from here on
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  thread_ = start_thread({"waiting for signals"}, [this] { watch(); });
}

SignalWatch::~SignalWatch() {
  done_ = true;
  pthread_kill(thread_.native_handle(), SIGUSR2);
  thread_.join();
  close(wake_);
}

void SignalWatch::end_if_asked() const {
  if (int signal = received_.load(); signal != 0) end_by(signal);
}

void SignalWatch::watch() {
  std::chrono::steady_clock::time_point asked;
  for (int signal = 0; sigwait(&signals_, &signal) == 0 && !done_;) {
    if (signal == SIGUSR1) ++shrink_;
    if (signal == SIGUSR1 || signal == SIGUSR2) continue;
    if (signal == SIGINT && taken_) {
      wake();
      continue;
    }
    const auto now = std::chrono::steady_clock::now();
    if (received_ == 0) {
      asked = now;
      received_ = signal;
      pthread_kill(printing_, signal);  // stays pending there until await_stdout() lets it in
      source_.request_stop();
      wake();
    } else if (now - asked > kSameRequest) {
      end_by(signal);
    }
  }
}

void await_stdout() {
  pollfd out{STDOUT_FILENO, POLLOUT, 0};
  if (poll(&out, 1, 0) != 0) return;
  const sigset_t stops = set_of({SIGINT, SIGTERM});
  sigset_t before;
  pthread_sigmask(SIG_UNBLOCK, &stops, &before);
  poll(&out, 1, -1);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace sluice::cli
