// Writes GGUF files, sound ones and others.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "io/checkpoint/gguf.h"

namespace sluice::test {

template <class T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
inline std::string gguf_string(std::string_view text) {
  return bytes_of<uint64_t>(text.size()) + std::string(text);
}
template <class T>
constexpr io::GgufType gguf_type() {
  using io::GgufType;
  if constexpr (std::is_same_v<T, bool>) return GgufType::boolean;
  if constexpr (std::is_same_v<T, float>) return GgufType::f32;
  if constexpr (std::is_same_v<T, double>) return GgufType::f64;
  constexpr GgufType kSigned[] = {GgufType::i8, GgufType::i16, GgufType::i32, GgufType::i64};
  constexpr GgufType kUnsigned[] = {GgufType::u8, GgufType::u16, GgufType::u32, GgufType::u64};
  constexpr int kLog = sizeof(T) == 8 ? 3 : sizeof(T) == 4 ? 2 : sizeof(T) == 2 ? 1 : 0;
  return std::is_signed_v<T> ? kSigned[kLog] : kUnsigned[kLog];
}

class GgufBuilder {
 public:
  template <class T>
  GgufBuilder& number(std::string_view key, T value) {
    return raw(key, gguf_type<T>(), bytes_of(value));
  }
  GgufBuilder& string(std::string_view key, std::string_view text) {
    return raw(key, io::GgufType::string, gguf_string(text));
  }
  template <class T>
  GgufBuilder& numbers(std::string_view key, const std::vector<T>& values) {
    std::string bytes;
    for (T value : values) bytes += bytes_of(value);
    return array(key, gguf_type<T>(), values.size(), bytes);
  }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes;
    for (const std::string& value : values) bytes += gguf_string(value);
    return array(key, io::GgufType::string, values.size(), bytes);
  }
  GgufBuilder& array(std::string_view key, io::GgufType type, uint64_t count,
                     const std::string& bytes) {
    return raw(key, io::GgufType::array,
               bytes_of(static_cast<uint32_t>(type)) + bytes_of(count) + bytes);
  }
  GgufBuilder& raw(std::string_view key, io::GgufType type, const std::string& bytes) {
    metadata_ += gguf_string(key) + bytes_of(static_cast<uint32_t>(type)) + bytes;
    ++keys_;
    return *this;
  }
  // `dims` as the file has them: columns first.
  GgufBuilder& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                      const std::string& data) {
    const uint64_t at = (data_.size() + alignment - 1) / alignment * alignment;
    data_.resize(at, '\xAA');
    data_ += data;
    return tensor_at(name, dims, type, at);
  }
  GgufBuilder& tensor_at(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                         uint64_t offset) {
    descriptions_ += gguf_string(name) + bytes_of(static_cast<uint32_t>(dims.size()));
    for (uint64_t d : dims) descriptions_ += bytes_of(d);
    descriptions_ += bytes_of(type) + bytes_of(offset);
    ++tensors_;
    return *this;
  }
  std::string build() const {
    std::string file = "GGUF" + bytes_of(version) + bytes_of(tensors_ + more_tensors) +
                       bytes_of(keys_ + more_keys) + metadata_ + descriptions_;
    file.resize((file.size() + alignment - 1) / alignment * alignment, '\xAA');
    return file + data_;
  }

  uint32_t version = 3;
  uint64_t alignment = 32;
  uint64_t more_tensors = 0, more_keys = 0;  // that the header claims to have

 private:
  std::string metadata_, descriptions_, data_;
  uint64_t keys_ = 0, tensors_ = 0;
};

}  // namespace sluice::test
