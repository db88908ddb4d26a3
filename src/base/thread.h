// Starts threads; the system may allow too few.
#pragma once

#include <exception>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace sluice {

// The use of a thread, for the error.
struct ThreadUse {
  std::string_view what;  // "computing"
  int wanted = 1;
  int made = 0;  // already
};

// Throws Error(runtime) that names the limits, if `fault` says that no more threads can start.
[[noreturn]] void fail_thread(const ThreadUse& use, const std::system_error& fault);

template <class Thread = std::thread, class Body>
Thread start_thread(const ThreadUse& use, Body&& body) {
  try {
    return Thread(std::forward<Body>(body));
  } catch (const std::system_error& fault) {
    fail_thread(use, fault);
  }
}

// Starts `count` threads in `threads` that run body(index). If one cannot be started, end() tells
// the others to return, and the error is thrown when they have.
template <class Body, class End>
void start_threads(std::vector<std::thread>& threads, std::string_view what, int count, Body body,
                   End end) {
  threads.reserve(static_cast<size_t>(count));
  try {
    for (int i = 0; i < count; ++i)
      threads.push_back(start_thread({what, count, i}, [body, i] { body(i); }));
  } catch (...) {
    end();
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    throw;
  }
}

}  // namespace sluice
