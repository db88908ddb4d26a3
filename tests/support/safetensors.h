// Reads golden tensors in tests. Trusts its input.
#pragma once

#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "src/base/json.h"
#include "tests/support/temp.h"

namespace sluice::test {

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  // The elements of a tensor whose element type has T's size.
  template <class T>
  std::vector<T> values(const std::string& name) const {
    std::span<const char> stored = bytes_of(name);
    std::vector<T> out(stored.size() / sizeof(T));
    std::memcpy(out.data(), stored.data(), stored.size());
    return out;
  }
  std::vector<int64_t> shape(const std::string& name) const;
  std::vector<std::string> names() const;
  bool has(const std::string& name) const { return header_.contains(name); }

 private:
  std::span<const char> bytes_of(const std::string& name) const;

  std::string bytes_;
  Json header_;
  uint64_t data_ = 0;
};

}  // namespace sluice::test
