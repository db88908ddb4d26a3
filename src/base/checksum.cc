#include "src/base/checksum.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace sluice {

uint64_t checksum64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

Digest digest128(std::span<const std::byte> bytes) {
  XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

std::string checksum128(std::span<const std::byte> bytes) {
  Digest digest = digest128(bytes);
  return fmt::format("{:016x}{:016x}", digest.high, digest.low);
}

struct TextChecksum::State {
  XXH3_state_t xxh;
};

void TextChecksum::Deleter::operator()(State* state) const { delete state; }

TextChecksum::TextChecksum() : state_(new State) { XXH3_128bits_reset(&state_->xxh); }

void TextChecksum::add(std::string_view part) {
  XXH3_128bits_update(&state_->xxh, part.data(), part.size());
}

std::string TextChecksum::digits() const {
  XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace sluice
