// Tags in text that comes piece by piece.
#pragma once

#include <algorithm>
#include <string_view>

namespace sluice {

// Bytes at the end of `text` that may begin `tag`: more text will tell.
inline size_t beginning(std::string_view text, std::string_view tag) {
  if (tag.empty()) return 0;
  for (size_t size = std::min(text.size(), tag.size() - 1); size > 0; --size)
    if (text.ends_with(tag.substr(0, size))) return size;
  return 0;
}

}  // namespace sluice
