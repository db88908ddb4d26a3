#include "src/base/environment.h"

#include <algorithm>
#include <cstdlib>

namespace sluice {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::filesystem::path environment_path(const char* name) {
  const std::string_view text = environment(name), home = environment("HOME");
  if (home.empty() || !(text == "~" || text.starts_with("~/"))) return text;
  return std::filesystem::path(home) / text.substr(std::min<size_t>(2, text.size()));
}

std::filesystem::path user_cache() {
  const std::filesystem::path cache = environment("XDG_CACHE_HOME"), home = environment("HOME");
  if (!cache.empty()) return cache / "sluice";
  return home.empty() ? home : home / ".cache/sluice";
}

}  // namespace sluice
