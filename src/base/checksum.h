// XXH3 checksums, against damage and for identity; not against an adversary.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace sluice {

uint64_t checksum64(std::span<const std::byte> bytes, uint64_t seed = 0);

struct Digest {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const Digest&) const = default;
};
Digest digest128(std::span<const std::byte> bytes);
std::string checksum128(std::span<const std::byte> bytes);  // 32 hexadecimal digits

}  // namespace sluice
