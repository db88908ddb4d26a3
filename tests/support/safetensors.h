// Reads golden tensors in tests. Trusts its input.
#pragma once

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "tests/support/temp.h"

namespace sluice::test {

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path) : bytes_(read_file(path)) {
    uint64_t size = 0;
    std::memcpy(&size, bytes_.data(), 8);
    header_ = Json::parse(bytes_.substr(8, size));
    data_ = 8 + size;
  }

  // The elements of a tensor whose element type has T's size.
  template <class T>
  std::vector<T> values(const std::string& name) const {
    const Json& offsets = header_.at(name).at("data_offsets");
    auto begin = offsets[0].get<uint64_t>(), end = offsets[1].get<uint64_t>();
    std::vector<T> out((end - begin) / sizeof(T));
    std::memcpy(out.data(), bytes_.data() + data_ + begin, end - begin);
    return out;
  }
  std::vector<int64_t> shape(const std::string& name) const {
    return header_.at(name).at("shape").get<std::vector<int64_t>>();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& [name, tensor] : header_.items()) {
      if (name != "__metadata__") found.push_back(name);
    }
    return found;
  }
  bool has(const std::string& name) const { return header_.contains(name); }

 private:
  std::string bytes_;
  Json header_;
  uint64_t data_ = 0;
};

}  // namespace sluice::test
