// The process's answer to signals, and to the way it was started.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <stop_token>
#include <thread>

namespace sluice::cli {

// Before anything else. Descriptors 0 to 2 are open then, so that no file that is opened later gets
// what is written to stderr; what is written to a stdout that was closed fails. Writing to a file
// beyond the limit on its size (RLIMIT_FSIZE) is an error of the write.
void prepare_process();

// Turns the first SIGINT or SIGTERM into a stop request, so that work ends in good order; a later
// one ends the process at once. SIGUSR1 asks for less memory. A thread that waits for signals needs
// no handler and no global state.
class SignalWatch {
 public:
  SignalWatch();  // on the thread that will print results
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  std::stop_token token() const { return source_.get_token(); }
  // Counts the requests for less memory.
  const std::atomic<int>& shrink() const { return shrink_; }
  // While there is one, SIGINT does not ask to stop: it ends an answer, or drops a line. One may be
  // made while there is another: what came is known to both, and is forgotten with the outer one.
  class Interrupts {
   public:
    explicit Interrupts(SignalWatch& watch);
    ~Interrupts();
    Interrupts(const Interrupts&) = delete;
    Interrupts& operator=(const Interrupts&) = delete;
    bool came() const;
    void forget();

   private:
    SignalWatch& watch_;
    bool inner_;
  };
  // Can be read from when such a SIGINT has come, or a signal that asks to stop; until it is
  // forgotten.
  int wake_descriptor() const { return wake_; }

  // Ends the process by the signal that asked to stop, so that shells and scripts see an interrupt.
  // Returns where there was none.
  void end_if_asked() const;

 private:
  void watch();
  void wake() const;

  sigset_t signals_;
  pthread_t printing_;
  std::stop_source source_;
  std::atomic<int> received_{0};  // the signal that asked to stop; 0: none
  std::atomic<int> shrink_{0};
  std::atomic<bool> taken_{false};  // an Interrupts takes SIGINT
  int wake_ = -1;  // an eventfd; it alone says that an interrupt came, to who asks and to who waits
  std::atomic<bool> done_{false};
  std::thread thread_;
};

// Returns when stdout takes something more, or an error. A signal that asks, or has asked, to stop
// ends the process instead of waiting for a reader.
void await_stdout();

}  // namespace sluice::cli
