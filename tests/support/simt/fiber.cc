#include "tests/support/simt/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>

#include "src/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace sluice::simt {
namespace {

// Instrumented frames are several times larger.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = 512 * 1024;
#else
constexpr size_t kStackBytes = 128 * 1024;
#endif

void leave([[maybe_unused]] Fiber& from, [[maybe_unused]] Fiber& to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.sanitizer_stack, to.stack, to.bytes);
#endif
}

void arrive([[maybe_unused]] Fiber& here, [[maybe_unused]] Fiber* first) {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(here.sanitizer_stack, &bottom, &bytes);
  if (first != nullptr && first->stack == nullptr) {  // the process's own: known only now
    first->stack = static_cast<std::byte*>(const_cast<void*>(bottom));
    first->bytes = bytes;
  }
#endif
}

}  // namespace

#if defined(__x86_64__)
// System V ABI: rbx, rbp and r12 to r15 are the callee's to keep; all else the caller has saved. A
// jump is predicted where it went before, a return where this stack's last call was.
asm(R"(
.text
.type sluice_simt_switch, @function
sluice_simt_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  pop %rcx
  jmp *%rcx
)");
extern "C" void sluice_simt_switch(void** save, void* to) asm("sluice_simt_switch");
#endif

void map_stack(Fiber& fiber, size_t number) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* p = mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  check(p != MAP_FAILED && mprotect(p, page, PROT_NONE) == 0, "memory for a fiber's stack");
  fiber.stack = static_cast<std::byte*>(p) + page;
  // Stacks that end at the same place of a page share a cache's sets, and put each other out.
  constexpr size_t kStep = 320, kPlaces = 32;
  fiber.bytes = kStackBytes - number % kPlaces * kStep;
}

void abandon([[maybe_unused]] Fiber& fiber) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(fiber.stack, fiber.bytes);
#endif
}

void prepare(Fiber& fiber, void (*entry)()) {
  fiber.sanitizer_stack = nullptr;
#if defined(__x86_64__)
  // A frame like the one that sluice_simt_switch leaves: six registers, the return address, and
  // above that a return address of zero, at which debuggers stop. The ABI wants rsp + 8 in
  // multiples of 16 on entry.
  std::array<uint64_t, 8> frame{};
  frame[6] = reinterpret_cast<uint64_t>(entry);
  std::byte* top = fiber.stack + fiber.bytes - sizeof frame;
  std::memcpy(top, frame.data(), sizeof frame);
  fiber.stack_pointer = top;
#else
  check(getcontext(&fiber.context) == 0, "getcontext");
  fiber.context.uc_stack.ss_sp = fiber.stack;
  fiber.context.uc_stack.ss_size = fiber.bytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, entry, 0);
#endif
}

void switch_fiber(Fiber& from, Fiber& to) {
  leave(from, to);
#if defined(__x86_64__)
  sluice_simt_switch(&from.stack_pointer, to.stack_pointer);
#else
  check(swapcontext(&from.context, &to.context) == 0, "swapcontext");
#endif
  arrive(from, nullptr);
}

void entered(Fiber& first) {
  Fiber fresh;
  arrive(fresh, &first);
}

}  // namespace sluice::simt
