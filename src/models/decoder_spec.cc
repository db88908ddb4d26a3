#include "src/models/decoder_spec.h"

#include <fmt/format.h>

namespace sluice {

std::string name_in_layer(const std::string& name, int64_t layer) {
  constexpr std::string_view kNumber = "{}";
  std::string in_layer = name;
  if (size_t at = name.find(kNumber); at != std::string::npos)
    in_layer.replace(at, kNumber.size(), fmt::format("{}", layer));
  return in_layer;
}

}  // namespace sluice
