// XXH3 checksums, against damage and for identity; not against an adversary.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace sluice {

uint64_t checksum64(std::span<const std::byte> bytes, uint64_t seed = 0);

struct Digest {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const Digest&) const = default;
};
Digest digest128(std::span<const std::byte> bytes);
std::string checksum128(std::span<const std::byte> bytes);  // 32 hexadecimal digits

// checksum128() of a text that comes in parts.
class TextChecksum {
 public:
  TextChecksum();
  void add(std::string_view part);
  std::string digits() const;

 private:
  struct State;
  struct Deleter {
    void operator()(State* state) const;
  };
  std::unique_ptr<State, Deleter> state_;
};

}  // namespace sluice
