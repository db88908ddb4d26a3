// Random numbers in a device's memory, and how long its work takes.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/units.h"
#include "src/device/device.h"

namespace sluice::bench {

// Random words, cut to `mask` and with `bits` set. A GPU's clock depends on them.
inline void fill(DeviceStream& stream, std::span<std::byte> to, uint32_t mask, uint32_t bits) {
  std::vector<uint32_t> words(4 * MiB);
  uint32_t state = 2463534242;
  for (uint32_t& word : words) {
    state ^= state << 13, state ^= state >> 17, state ^= state << 5;
    word = (state & mask) | bits;
  }
  const uint64_t part = words.size() * 4;
  for (uint64_t at = 0; at < to.size(); at += part)
    stream.copy(to.data() + at, reinterpret_cast<const std::byte*>(words.data()),
                std::min(part, to.size() - at));
  stream.synchronize();
}

// Mean seconds of one body(), which puts work into the stream. Three runs before are not counted.
template <class Body>
double seconds(DeviceStream& stream, const Body& body, int runs = 20) {
  for (int i = 0; i < 3; ++i) body();
  stream.synchronize();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < runs; ++i) body();
  stream.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / runs;
}

}  // namespace sluice::bench
