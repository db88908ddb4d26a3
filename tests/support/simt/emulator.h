// Runs CUDA kernels on the CPU, for tests. The kernels' sources are compiled as C++ with
// tests/support/simt/device.h in the place of CUDA's headers; this file runs them, one block after
// the other, each thread of a block on a stack of its own (fiber.h), until it meets an operation
// that waits for others: a barrier, a shuffle, a matrix product of the warp.
//
// Checked while it runs; each fault names the block and the thread:
//   - a barrier that some threads of the block never reach, or that they reach at different places;
//   - a warp operation that a lane of its mask never reaches, or with another mask, or elsewhere;
//     a shuffle from a lane outside the mask;
//   - vector accesses that are not aligned (load_as, store_as);
//   - reads and writes outside of buffers (buffer.h) and of shared memory.
// Shared memory is exactly as large as the launch says and holds NaN when a block starts. What
// depends on the order in which threads run shows when the order is changed (set_order). Not
// emulated: caches, memory ordering between threads, timing, more than one block at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <string>

#include "kernels/cuda/launch.h"

namespace sluice::simt {

// A kernel did what it may not. The launch is over; its blocks are abandoned.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The order in which threads, warps and blocks get their turn. A warp goes on until it waits for
// others. shuffled: at random, by `seed`, and warps also pause at random.
enum class Order : uint8_t { forward, backward, shuffled };
void set_order(Order order, uint64_t seed = 0);

// Runs body() once for every thread of the launch. Throws Fault.
void run(const cuda::Launch& launch, const std::function<void()>& body);

// "block (1, 0, 0), thread (5, 0, 0)" while a kernel runs, else "no kernel".
std::string whereabouts();

// Counts since the process began; a test sees by them that kernels did run.
struct Counts {
  int64_t launches = 0;
  int64_t blocks = 0;
};
Counts counts();

// ---- for device.h: what a thread calls while it runs

inline constexpr int kWarp = 32;

[[noreturn]] void fault(const std::string& what, std::source_location where);

void wait_for_block(std::source_location where);

// Waits until every lane of `mask` has called with the same name and mask at the same place; the
// last one to come calls complete(args of all lanes, mask), where absent lanes have null.
using Complete = void (*)(void* const (&args)[kWarp], uint32_t mask);
void wait_for_warp(const char* name, uint32_t mask, void* args, Complete complete,
                   std::source_location where);

int lane();                   // of the running thread
std::byte* dynamic_shared();  // of the running block

}  // namespace sluice::simt
