#include "tests/support/simt/emulator.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/base/error.h"
#include "tests/support/simt/buffer.h"
#include "tests/support/simt/device.h"
#include "tests/support/simt/fiber.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

// Variables that device code reads; set whenever a thread gets its turn.
uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace sluice::simt {
namespace {

enum class State : uint8_t { ready, at_barrier, in_warp, done };

struct Thread {
  Fiber fiber;
  bool started = false;  // its fiber waits for a block's body
  uint3 index;
  unsigned rank = 0;  // within the block
  State state = State::done;
  // The operation that it waits in.
  const char* operation = nullptr;
  std::source_location where;
  uint32_t mask = 0;
  void* args = nullptr;
};

// The launch that is running; there is never more than one.
struct Machine {
  std::deque<Thread> made;  // kept from launch to launch, for their stacks
  std::array<Thread*, 1024> threads{};
  size_t size = 0;  // threads of a block of this launch
  Fiber scheduler;
  std::span<const size_t> warp;  // whose threads get their turn, in this order
  size_t turns = 0;              // of it, so far
  Thread* current = nullptr;
  const std::function<void()>* body = nullptr;
  std::unique_ptr<GuardedBytes> shared;
  std::optional<std::string> fault;
  size_t at_barrier = 0;  // threads
  Thread* first_at_barrier = nullptr;
  std::array<uint32_t, 1024 / kWarp> waiting_lanes{};  // of each warp, in a warp operation
  Order order = Order::forward;
  std::mt19937_64 random;
  Counts counts;
};

Machine the_machine;
Machine& machine() { return the_machine; }

std::string text(const uint3& v) { return fmt::format("({}, {}, {})", v.x, v.y, v.z); }

std::string text(const std::source_location& w) {
  return fmt::format("{}:{}", w.file_name(), w.line());
}

bool same_place(const std::source_location& a, const std::source_location& b) {
  return a.line() == b.line() && a.column() == b.column() &&
         (a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0);
}

std::string name_of(const Thread& t) {
  return fmt::format("block {}, thread {}", text(blockIdx), text(t.index));
}

std::string doing(const Thread& t) {
  if (t.state == State::done) return "has left the kernel";
  if (t.state == State::ready) return "has yet to run";
  return fmt::format("waits in {} at {}", t.operation, text(t.where));
}

// The next thread of the warp that is ready gets its turn. Returns its fiber, or the scheduler's if
// there is none.
Fiber& next_turn() {
  Machine& m = machine();
  while (!m.fault && m.turns < m.warp.size()) {
    Thread& t = *m.threads[m.warp[m.turns++]];
    if (t.state != State::ready) continue;
    m.current = &t;
    threadIdx = t.index;
    return t.fiber;
  }
  m.current = nullptr;
  return m.scheduler;
}

// The running thread waits. It goes on when next_turn() is its own.
void suspend() {
  Fiber& own = machine().current->fiber;
  switch_fiber(own, next_turn());
}

// Unwinds the stack of a thread that did what it may not.
struct Faulty {};

void thread_main() {
  Machine& m = machine();
  entered(m.scheduler);
  for (;;) {  // a turn of the loop for each block
    try {
      (*m.body)();
    } catch (const Faulty&) {
    }
    m.current->state = State::done;
    suspend();
  }
}

// Returns the threads of the running thread's warp, from lane 0; null behind the block's last.
Thread* const* warp_threads() {
  Machine& m = machine();
  return &m.threads[m.current->rank / kWarp * kWarp];
}

std::vector<size_t> turn_order(size_t count) {
  Machine& m = machine();
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  if (m.order == Order::backward) std::reverse(order.begin(), order.end());
  if (m.order == Order::shuffled) std::shuffle(order.begin(), order.end(), m.random);
  return order;
}

// ---- accesses that the memory's protection catches

void say(const std::string& line) {
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

struct sigaction earlier_handler;

// Says who it was; the access is then tried again, and ends the process as it would have.
void on_bad_access(int signal, siginfo_t* info, void*) {
  say(fmt::format("simt: {}: address {}{}\n", whereabouts(), info->si_addr,
                  describe_address(info->si_addr)));
  sigaction(signal, &earlier_handler, nullptr);
}

void watch_accesses() {
  static const bool once = [] {
#if defined(__SANITIZE_ADDRESS__)  // gives each thread its signal stack, and takes it back
    __asan_set_error_report_callback([](const char*) { say("simt: " + whereabouts() + "\n"); });
#else
    static std::array<std::byte, 65536> signal_stack;
    stack_t stack{};
    stack.ss_sp = signal_stack.data();
    stack.ss_size = signal_stack.size();
    check(sigaltstack(&stack, nullptr) == 0, "a stack for the handler of bad accesses");
#endif
    struct sigaction action{};
    action.sa_sigaction = on_bad_access;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    return sigaction(SIGSEGV, &action, &earlier_handler) == 0;
  }();
  check(once, "a handler for bad accesses");
}

// ---- blocks

void release_barrier() {
  Machine& m = machine();
  m.at_barrier = 0;
  for (size_t i = 0; i < m.size; ++i) {
    if (m.threads[i]->state == State::at_barrier) m.threads[i]->state = State::ready;
  }
}

// Nobody can run and somebody has not ended: says who waits for whom.
std::string describe_stall() {
  Machine& m = machine();
  auto in = [&](State state) -> Thread* {
    const auto end = m.threads.begin() + static_cast<std::ptrdiff_t>(m.size);
    auto found =
        std::find_if(m.threads.begin(), end, [&](const Thread* t) { return t->state == state; });
    return found == end ? nullptr : *found;
  };
  if (Thread* waiting = in(State::in_warp)) {
    m.current = waiting;
    for (int i = 0; i < kWarp; ++i) {
      if ((waiting->mask >> i & 1) == 0) continue;
      const Thread* missing = warp_threads()[i];
      if (missing == nullptr) {
        return fmt::format("{} {} for lane {}, which the block does not have", name_of(*waiting),
                           doing(*waiting), i);
      }
      const bool came = missing->state == State::in_warp && missing->mask == waiting->mask;
      if (came) continue;
      return fmt::format("{} {} for lane {}, which {}", name_of(*waiting), doing(*waiting), i,
                         doing(*missing));
    }
  }
  const Thread *waiting = in(State::at_barrier), *other = in(State::done);
  check(waiting != nullptr && other != nullptr, "a stalled block has a reason");
  return fmt::format("{} {} for thread {}, which {}", name_of(*waiting), doing(*waiting),
                     text(other->index), doing(*other));
}

void start_threads() {
  Machine& m = machine();
  if (m.shared->size() > 0) std::memset(m.shared->data(), 0xff, m.shared->size());
  m.at_barrier = 0;
  m.waiting_lanes.fill(0);
  for (size_t i = 0; i < m.size; ++i) {
    Thread& t = *m.threads[i];
    t.state = State::ready;
    if (!t.started) prepare(t.fiber, thread_main);
    t.started = true;
  }
}

// Each ready thread of a warp gets its turn, one from the other; false if there is none. A thread
// that becomes ready after its turn waits for the next call.
bool advance(std::span<const size_t> warp) {
  Machine& m = machine();
  m.warp = warp;
  m.turns = 0;
  Fiber& first = next_turn();
  if (&first == &m.scheduler) return false;
  switch_fiber(m.scheduler, first);
  return true;
}

using Warps = std::vector<std::vector<size_t>>;

// The block's threads by warps, in the order in which they get their turn.
Warps warps_in_order() {
  Warps warps((machine().size + kWarp - 1) / kWarp);
  for (size_t i : turn_order(machine().size)) warps[i / kWarp].push_back(i);
  Warps ordered;
  for (size_t w : turn_order(warps.size())) ordered.push_back(std::move(warps[w]));
  return ordered;
}

// A warp goes on until it waits for others, so that it gets as far ahead of them as barriers allow;
// or, shuffled, for a while.
void run_block(const Warps& warps) {
  Machine& m = machine();
  start_threads();
  for (bool progress = true; progress && !m.fault;) {
    progress = false;
    for (const auto& warp : warps) {
      while (advance(warp)) {
        progress = true;
        if (m.order == Order::shuffled && m.random() % 4 == 0) break;
      }
    }
  }
  if (m.fault) return;
  const bool all_done =
      std::all_of(m.threads.begin(), m.threads.begin() + static_cast<std::ptrdiff_t>(m.size),
                  [](const Thread* t) { return t->state == State::done; });
  if (!all_done) m.fault = describe_stall();
  m.current = nullptr;
}

void set_up(const cuda::Launch& launch, const std::function<void()>& body) {
  Machine& m = machine();
  check(m.body == nullptr, "one launch at a time");
  gridDim = {launch.grid.x, launch.grid.y, launch.grid.z};
  blockDim = {launch.block.x, launch.block.y, launch.block.z};
  m.size = size_t{blockDim.x} * blockDim.y * blockDim.z;
  check(m.size > 0 && m.size <= 1024 && blockDim.z <= 64, "a block of 1 to 1024 threads");
  check(gridDim.x > 0 && gridDim.y > 0 && gridDim.z > 0, "a grid of at least one block");
  check(launch.shared_bytes <= cuda::kMostSharedBytes, "shared memory that every GPU has");
  check(gridDim.x < 1u << 31 && gridDim.y < 65536 && gridDim.z < 65536, "a grid that CUDA takes");
  for (size_t i = m.made.size(); i < m.size; ++i) map_stack(m.made.emplace_back().fiber, i);
  for (size_t i = 0; i < m.threads.size(); ++i) m.threads[i] = i < m.size ? &m.made[i] : nullptr;
  for (unsigned i = 0; i < m.size; ++i) {
    Thread& t = *m.threads[i];
    t.rank = i;
    t.index = {i % blockDim.x, i / blockDim.x % blockDim.y, i / (blockDim.x * blockDim.y)};
  }
  m.shared = std::make_unique<GuardedBytes>(launch.shared_bytes);
  m.fault.reset();
  m.body = &body;
  ++m.counts.launches;
}

}  // namespace

void set_order(Order order, uint64_t seed) {
  machine().order = order;
  machine().random.seed(seed);
}

Counts counts() { return machine().counts; }

std::string whereabouts() {
  const Machine& m = machine();
  return m.current == nullptr ? "no kernel" : name_of(*m.current);
}

void run(const cuda::Launch& launch, const std::function<void()>& body) {
  Machine& m = machine();
  watch_accesses();
  set_up(launch, body);
  Warps warps;
  for (size_t i : turn_order(size_t{gridDim.x} * gridDim.y * gridDim.z)) {
    const unsigned block = static_cast<unsigned>(i);
    blockIdx = {block % gridDim.x, block / gridDim.x % gridDim.y, block / (gridDim.x * gridDim.y)};
    if (m.order == Order::shuffled || warps.empty()) warps = warps_in_order();
    run_block(warps);
    ++m.counts.blocks;
    if (!m.fault && !m.shared->intact()) {
      m.fault = fmt::format("block {} wrote outside of its {} bytes of shared memory",
                            text(blockIdx), m.shared->size());
    }
    if (m.fault) break;
  }
  m.body = nullptr;
  m.shared->repair();
  m.shared.reset();
  if (!m.fault) return;
  for (size_t i = 0; i < m.size; ++i) {
    if (m.threads[i]->state == State::done) continue;
    abandon(m.threads[i]->fiber);
    m.threads[i]->started = false;
  }
  throw Fault(*m.fault);
}

void fault(const std::string& what, std::source_location where) {
  Machine& m = machine();
  m.fault = fmt::format("{}: {} at {}", name_of(*m.current), what, text(where));
  throw Faulty{};
}

// The lanes of my mask that wait already do so in the operation that I have come to. It is enough
// to look at one: that one has looked at the others.
void check_meets_others(const Thread& me) {
  const uint32_t waiting = machine().waiting_lanes[me.rank / kWarp] & me.mask;
  if (waiting == 0) return;
  const int other = std::countr_zero(waiting);
  const Thread& t = *warp_threads()[other];
  if (t.operation == me.operation && t.mask == me.mask && same_place(t.where, me.where)) return;
  fault(fmt::format("{} with mask {:#x}, while lane {} {} with mask {:#x}", me.operation, me.mask,
                    other, doing(t), t.mask),
        me.where);
}

void wait_for_block(std::source_location where) {
  Machine& m = machine();
  Thread& me = *m.current;
  if (m.at_barrier == 0) m.first_at_barrier = &me;
  const Thread& first = *m.first_at_barrier;
  if (m.at_barrier > 0 && !same_place(first.where, where)) {
    fault(fmt::format("__syncthreads, while thread {} {}", text(first.index), doing(first)), where);
  }
  me.operation = "__syncthreads";
  me.where = where;
  me.state = State::at_barrier;
  if (++m.at_barrier == m.size) release_barrier();
  suspend();
}

void wait_for_warp(const char* name, uint32_t mask, void* args, Complete complete,
                   std::source_location where) {
  Machine& m = machine();
  Thread& me = *m.current;
  me.operation = name;
  me.where = where;
  me.mask = mask;
  me.args = args;
  if ((mask >> lane() & 1) == 0) fault(fmt::format("{} by a lane outside its mask", name), where);
  check_meets_others(me);
  uint32_t& waiting = m.waiting_lanes[me.rank / kWarp];
  waiting |= 1u << lane();
  if ((waiting & mask) != mask) {
    me.state = State::in_warp;
    suspend();
    return;
  }
  Thread* const* warp = warp_threads();
  void* all[kWarp] = {};
  for (int i = 0; i < kWarp; ++i) {
    if (mask >> i & 1) all[i] = warp[i]->args;
  }
  complete(all, mask);
  waiting &= ~mask;
  for (int i = 0; i < kWarp; ++i) {
    if (mask >> i & 1) warp[i]->state = State::ready;
  }
}

int lane() { return static_cast<int>(machine().current->rank % kWarp); }

std::byte* dynamic_shared() { return machine().shared->data(); }

}  // namespace sluice::simt
