#include "src/serve/request_target.h"

#include <charconv>
#include <cstdint>
#include <system_error>

namespace sluice {
namespace {

// "http://host:1/path" → "/path".
std::string_view without_authority(std::string_view target) {
  for (std::string_view scheme : {"http://", "https://"}) {
    if (!target.starts_with(scheme)) continue;
    target.remove_prefix(scheme.size());
    const size_t path = target.find_first_of("/?");
    return path == std::string_view::npos || target[path] == '?' ? "/" : target.substr(path);
  }
  return target;
}

}  // namespace

std::string path_of(std::string_view target) {
  constexpr size_t kEscape = 3;  // characters: %2F
  constexpr int kHex = 16;
  std::string_view left = without_authority(target);
  left = left.substr(0, left.find_first_of("?#"));
  const std::string_view plain = left;
  std::string path;
  while (!left.empty()) {
    if (left.front() != '%') {
      path += left.front();
      left.remove_prefix(1);
      continue;
    }
    uint8_t byte = 0;
    const std::string_view digits = left.substr(1, kEscape - 1);
    const auto [end, fault] =
        std::from_chars(digits.data(), digits.data() + digits.size(), byte, kHex);
    if (fault != std::errc() || end != left.data() + kEscape) return std::string(plain);
    path += static_cast<char>(byte);
    left.remove_prefix(kEscape);
  }
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

std::string query_of(std::string_view target) {
  target = target.substr(0, target.find('#'));
  const size_t mark = target.find('?');
  return mark == std::string_view::npos ? std::string() : std::string(target.substr(mark + 1));
}

}  // namespace sluice
