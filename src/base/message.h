// Values in a row of bytes, which another process of the same program reads in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "src/base/check.h"

namespace sluice {

class MessageWriter {
 public:
  template <class T>
    requires std::is_trivially_copyable_v<T>
  void put(const T& value) {
    append(std::as_bytes(std::span(&value, 1)));
  }
  // A list, with its length.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  void list(std::span<const T> values) {
    put(static_cast<uint64_t>(values.size()));
    append(std::as_bytes(values));
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  void clear() { bytes_.clear(); }

 private:
  void append(std::span<const std::byte> more) {
    bytes_.insert(bytes_.end(), more.begin(), more.end());
  }
  std::vector<std::byte> bytes_;
};

class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
    requires std::is_trivially_copyable_v<T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  // Appends a list to `to`, and returns its length.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  uint64_t list(std::vector<T>& to) {
    const auto count = get<uint64_t>();
    check(count <= rest_.size() / sizeof(T), "a message has its lists");
    const std::span<const std::byte> bytes = take(count * sizeof(T));
    const size_t before = to.size();
    to.resize(before + count);
    if (count > 0) std::memcpy(to.data() + before, bytes.data(), bytes.size());
    return count;
  }

 private:
  std::span<const std::byte> take(size_t bytes) {
    check(bytes <= rest_.size(), "a message has what is read from it");
    const std::span<const std::byte> taken = rest_.first(bytes);
    rest_ = rest_.subspan(bytes);
    return taken;
  }
  std::span<const std::byte> rest_;
};

}  // namespace sluice
