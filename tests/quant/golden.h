// Tensors of a golden file (safetensors: 8 bytes of header length, JSON header, data). Trusts its
// input: for files of our own.
#pragma once

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/json.h"
#include "tests/support/temp.h"

namespace sluice::test {

class Golden {
 public:
  explicit Golden(const std::filesystem::path& path) : bytes_(read_file(path)) {
    uint64_t length = 0;
    std::memcpy(&length, bytes_.data(), sizeof length);
    header_ = parse_json(bytes_.substr(8, length), path.string());
    data_ = 8 + length;
  }

  bool has(const std::string& name) const { return header_.contains(name); }
  std::vector<int64_t> shape(const std::string& name) const {
    return header_.at(name).at("shape").get<std::vector<int64_t>>();
  }
  template <class T>
  std::vector<T> values(const std::string& name) const {
    auto offsets = header_.at(name).at("data_offsets").get<std::vector<size_t>>();
    std::vector<T> out((offsets[1] - offsets[0]) / sizeof(T));
    std::memcpy(out.data(), bytes_.data() + data_ + offsets[0], offsets[1] - offsets[0]);
    return out;
  }

 private:
  std::string bytes_;
  Json header_;
  size_t data_ = 0;
};

}  // namespace sluice::test
