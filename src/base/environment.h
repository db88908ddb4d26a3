// Environment variables.
#pragma once

#include <filesystem>
#include <string_view>

namespace sluice {

// Empty: not set.
std::string_view environment(const char* name);
// The value as a path, "~" at its beginning as the home directory; empty: not set.
std::filesystem::path environment_path(const char* name);
// The program's directory in $XDG_CACHE_HOME, else in ~/.cache; empty where there is no home.
std::filesystem::path user_cache();

}  // namespace sluice
