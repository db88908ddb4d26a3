// Stacks that one thread switches between by itself: what the emulated threads of a block run on.
// Told to the address sanitizer, which must know the stack it is on.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace sluice::simt {

struct Fiber {
  std::byte* stack = nullptr;  // lowest address; null: the stack that the process started with
  size_t bytes = 0;
  void* sanitizer_stack = nullptr;  // the address sanitizer's own, while this fiber is suspended
#if defined(__x86_64__)
  void* stack_pointer = nullptr;  // while suspended
#else
  ucontext_t context{};
#endif
};

// Maps a stack with a page below it that nobody may touch. It is never given back: fibers are kept
// for the whole process. `number`: of the fiber among those that take turns.
void map_stack(Fiber& fiber, size_t number);

// The next switch to `fiber` calls entry(), which must never return.
void prepare(Fiber& fiber, void (*entry)());

// `fiber` is suspended and will not be gone on with: what it has on its stack is forgotten.
void abandon(Fiber& fiber);

// Goes on with `to`; returns when somebody switches to `from`.
void switch_fiber(Fiber& from, Fiber& to);

// Must be called first thing in entry(). `first`: the fiber of the stack that the process started
// with, from which the first switch of all was made.
void entered(Fiber& first);

}  // namespace sluice::simt
