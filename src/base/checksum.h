// XXH3 checksums, against damage and for identity; not against an adversary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace sluice {

uint64_t checksum64(std::span<const std::byte> bytes, uint64_t seed = 0);
std::string checksum128(std::span<const std::byte> bytes);  // 32 hexadecimal digits

}  // namespace sluice
