// Waits for files, and for stop requests meanwhile.
#pragma once

#include <stop_token>
#include <string>

#include "io/file.h"

namespace sluice::io {

class Waiter {
 public:
  explicit Waiter(const std::stop_token& stop);

  // Waits until `fd` has one of poll()'s `events`, or `milliseconds` (-1: for ever) have passed.
  // `fd` may be -1: only time passes. Throws Error(runtime) where a stop request ends it.
  void wait(int fd, short events, int milliseconds, const std::string& name) const;

 private:
  struct Wake {
    int fd;
    void operator()() const;
  };

  Fd wake_;
  std::stop_callback<Wake> callback_;
};

// Returns whether to try again, after waiting, a call that failed with `error`.
bool try_again(int error);

}  // namespace sluice::io
