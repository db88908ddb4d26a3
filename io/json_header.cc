#include "io/json_header.h"

#include <algorithm>

#include "src/base/error.h"

namespace sluice::io {

std::string json_header(const Json& object, uint64_t bytes) {
  std::string text = object.dump(-1, ' ', true, Json::error_handler_t::replace);
  check(text.size() <= bytes, "the header of a file of ours is too long");
  text.resize(bytes, '\0');
  return text;
}

Json read_json_header(const Fd& fd, const std::filesystem::path& path, uint64_t bytes) {
  std::string text(bytes, '\0');
  read_exactly(fd, path, 0, text);
  text.resize(std::min(text.find('\0'), text.size()));
  return parse_json(text, path.string());
}

}  // namespace sluice::io
