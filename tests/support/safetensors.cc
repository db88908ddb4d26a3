#include "tests/support/safetensors.h"

namespace sluice::test {

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : bytes_(read_file(path)) {
  uint64_t size = 0;
  std::memcpy(&size, bytes_.data(), 8);
  header_ = Json::parse(bytes_.substr(8, size));
  data_ = 8 + size;
}

std::span<const char> SafetensorsFile::bytes_of(const std::string& name) const {
  const Json& offsets = header_.at(name).at("data_offsets");
  auto begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
  return std::span<const char>(bytes_).subspan(data_ + begin, end - begin);
}

std::vector<int64_t> SafetensorsFile::shape(const std::string& name) const {
  return header_.at(name).at("shape").get<std::vector<int64_t>>();
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> found;
  for (const auto& [name, tensor] : header_.items()) {
    if (name != "__metadata__") found.push_back(name);
  }
  return found;
}

}  // namespace sluice::test
