#include "src/text/charsmap.h"

#include <algorithm>
#include <cstring>

#include "src/base/error.h"
#include "src/text/utf8.h"

namespace sluice {
namespace {

// A unit of a double array.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value(uint32_t unit) { return unit & 0x7FFFFFFF; }
// A leaf's has the highest bit, so that it is no byte.
uint32_t label(uint32_t unit) { return unit & 0x800000FF; }
uint32_t offset(uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

bool is_inside_character(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80;
}

}  // namespace

Charsmap Charsmap::parse(std::string_view bytes, std::string_view where) {
  uint32_t size = 0;  // little-endian, as we are
  if (bytes.size() >= sizeof size) std::memcpy(&size, bytes.data(), sizeof size);
  if (size == 0 || size % sizeof(uint32_t) != 0 || size > bytes.size() - sizeof size)
    fail(ErrorKind::refused, "{}: precompiled_charsmap is damaged: it has no double array", where);
  Charsmap map;
  map.units_.resize(size / sizeof(uint32_t));
  std::memcpy(map.units_.data(), bytes.data() + sizeof size, size);
  map.texts_ = bytes.substr(sizeof size + size);
  if (to_valid_utf8(map.texts_) != map.texts_)
    fail(ErrorKind::refused, "{}: precompiled_charsmap is damaged: a text is not UTF-8", where);
  return map;
}

Charsmap::Match Charsmap::find(std::string_view text, bool longest) const {
  constexpr size_t kLongestEntry = 256;  // bytes: a search must not depend on more
  const bool all = text.size() < kLongestEntry;
  const size_t size = std::min(text.size(), kLongestEntry);
  Match match;
  size_t node = offset(units_[0]);
  for (size_t i = 0; i < size; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || label(units_[node]) != byte) return match;
    const uint32_t unit = units_[node];
    node ^= offset(unit);
    if (!has_leaf(unit)) continue;
    const size_t begin = node < units_.size() ? value(units_[node]) : texts_.size();
    const bool damaged = begin >= texts_.size() || is_inside_character(texts_, begin) ||
                         is_inside_character(text, i + 1);
    if (damaged) return match;
    match.bytes = i + 1;
    match.by = std::string_view(texts_).substr(begin, texts_.find('\0', begin) - begin);
    if (!longest) return match;
  }
  match.is_open = all;
  return match;
}

}  // namespace sluice
