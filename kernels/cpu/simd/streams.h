// How few rows take a layer's panels. A tile multiplies several panels side by side, and whenever a
// thread turns to panels elsewhere, memory is waited for: with 48 KiB panels that cost a tenth. So
// the layer is as many streams as a tile has panels, each a run of adjacent panels, of which a tile
// has one: while a thread goes on, each of its panels begins in memory where the one before it
// ended, and what is fetched ahead of one is the next.
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
inline Streams streams_of(const LinearJob& job, int64_t count) {
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
template <class Multiply>
inline void for_streamed_panels(const LinearJob& job, const Streams& streams, int64_t begin,
                                int64_t end, Multiply&& multiply) {
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
