#include "src/engine/output_text.h"

#include <algorithm>
#include <string_view>

namespace sluice {

std::string OutputText::add(int32_t id) {
  pending_ += detokenizer_.add(id);
  return take(false);
}

std::string OutputText::finish() {
  pending_ += detokenizer_.finish();
  return take(true);
}

// The part of what is pending that can be shown; all of it at the end.
std::string OutputText::take(bool at_end) {
  size_t cut = std::string::npos;
  for (const std::string& s : stops_) cut = std::min(cut, pending_.find(s));
  if (cut != std::string::npos) {
    stopped_ = true;
    return std::exchange(pending_, {}).substr(0, cut);
  }
  size_t held = 0;
  for (const std::string& s : stops_) {
    for (size_t n = std::min(s.size() - 1, pending_.size()); !at_end && n > held; --n) {
      if (pending_.ends_with(std::string_view(s).substr(0, n))) held = n;
    }
  }
  std::string shown = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, shown.size());
  return shown;
}

}  // namespace sluice
