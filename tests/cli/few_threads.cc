// Preloaded into the program: a system on which FEW_THREADS threads can be made, and no more.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) {
  static std::atomic<int> left{std::atoi(std::getenv("FEW_THREADS"))};
  static auto* const real =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  if (left.fetch_sub(1) <= 0) return EAGAIN;
  return real(thread, attributes, body, argument);
}
