// A library in the place of NCCL.
#pragma once

#include <functional>

struct CUstream_st;

namespace sluice::test {

// The streams of emulated devices, which the library does not link.
struct FakeStreams {
  void (*put)(CUstream_st*, std::function<void()>) = nullptr;
  void (*synchronize)(CUstream_st*) = nullptr;
};

}  // namespace sluice::test

// The library's own function, which is called before the others.
using FakeNcclUse = void (*)(const sluice::test::FakeStreams*);
// Has ranks wait while they join a group, until it is called with false. `failing`: the rank that
// fails instead; -1: none.
using FakeNcclHold = void (*)(bool hold, int failing);
