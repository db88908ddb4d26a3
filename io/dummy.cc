#include "io/dummy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace sluice::io {
namespace {

// Numbers that share 64 random bits.
using Four = std::array<uint16_t, 4>;

// SplitMix64's output for a state: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
uint64_t mixed(uint64_t state) {
  state *= 0x9e3779b97f4a7c15;
  state = (state ^ state >> 30) * 0xbf58476d1ce4e5b9;
  state = (state ^ state >> 27) * 0x94d049bb133111eb;
  return state ^ state >> 31;
}

Four four_numbers(uint64_t number) {
  constexpr float kStep = 0.001f / 32768;
  const auto random = std::bit_cast<std::array<int16_t, 4>>(mixed(number + 1));
  Four four;
  for (size_t i = 0; i < four.size(); ++i)
    four[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(random[i] * kStep) >> 16);
  return four;
}

}  // namespace

CheckpointFile dummy_file(uint64_t bytes) {
  CheckpointFile file;
  file.name = "dummy weights";
  file.size = bytes;
  return file;
}

bool is_dummy(const CheckpointFile& file) { return file.path.empty(); }

void dummy_bytes(uint64_t offset, std::span<std::byte> to) {
  while (!to.empty()) {
    const Four four = four_numbers(offset / sizeof(Four));
    const size_t begin = offset % sizeof(Four), count = std::min(sizeof(Four) - begin, to.size());
    std::memcpy(to.data(), reinterpret_cast<const std::byte*>(four.data()) + begin, count);
    to = to.subspan(count);
    offset += count;
  }
}

}  // namespace sluice::io
