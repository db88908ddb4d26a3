#include "src/base/environment.h"

#include <cstdlib>

namespace sluice {

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::filesystem::path user_cache() {
  const std::filesystem::path cache = environment("XDG_CACHE_HOME"), home = environment("HOME");
  if (!cache.empty()) return cache / "sluice";
  return home.empty() ? home : home / ".cache/sluice";
}

}  // namespace sluice
