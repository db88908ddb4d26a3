// The header of Sluice's own files: a JSON object, padded with zeros.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "io/file.h"
#include "src/base/json.h"

namespace sluice::io {

std::string json_header(const Json& object, uint64_t bytes);  // padded to `bytes`
// Throws Error for a file that is shorter, or holds no JSON.
Json read_json_header(const Fd& fd, const std::filesystem::path& path, uint64_t bytes);

}  // namespace sluice::io
