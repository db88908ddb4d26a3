// The order in which few rows take a layer's panels. A tile multiplies several panels side by side.
// Whenever a thread turns to panels elsewhere, it waits for memory: with 48 KiB panels that cost a
// tenth. So the layer is cut into as many streams of adjacent panels as a tile has panels, and a
// tile has a panel of each stream. While a thread goes on, each of its panels begins in memory
// where the one before it ended, and prefetching beyond a panel fetches the next one.
#pragma once

#include "kernels/cpu/ops.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// Panel p of stream s is panel s * length + p of the layer; the last stream ends early. Lengths are
// odd: of streams that lie a multiple of a large power of two apart memory gives less.
struct Streams {
  int64_t count;   // 1, 2 or 4
  int64_t length;  // panels of each
};
template <class Job>
inline Streams streams_of(const Job& job, int64_t count) {
  const int64_t length = (job.panels + count - 1) / count;
  return {count, length | 1};
}

// Panels of one tile: the first, how many, and how far it is from one to the next.
struct StreamedPanels {
  int64_t first, count, apart;
  int64_t panel(int64_t p) const { return first + p * apart; }
};
// Calls multiply(StreamedPanels) for places [begin, end): place s of a panel p of all streams is
// p * count + s.
template <class Job, class Multiply>
inline void for_streamed_panels(const Job& job, const Streams& streams, int64_t begin, int64_t end,
                                Multiply&& multiply) {
  for (int64_t place = begin; place < end;) {
    const int64_t p = place / streams.count, s = place % streams.count;
    const int64_t left = streams.count - s < end - place ? streams.count - s : end - place;
    const int64_t first = s * streams.length + p;
    const int64_t there = (job.panels - first + streams.length - 1) / streams.length;
    const int64_t count = there < left ? there : left;
    if (p < streams.length && count > 0) multiply(StreamedPanels{first, count, streams.length});
    place += left;
  }
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
