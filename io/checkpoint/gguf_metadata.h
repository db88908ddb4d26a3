// The metadata of a GGUF file that is written, and the beginning of the file: all before the data.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/checkpoint/gguf.h"
#include "io/checkpoint/safetensors_writer.h"

namespace sluice::io {

class GgufMetadata {
 public:
  void add_integer(std::string_view key, uint32_t value);
  void add_short(std::string_view key, uint16_t value);
  void add_signed(std::string_view key, int32_t value);
  void add_number(std::string_view key, float value);
  void add_boolean(std::string_view key, bool value);
  void add_string(std::string_view key, std::string_view value);
  void add_strings(std::string_view key, std::span<const std::string> values);
  void add_integers(std::string_view key, std::span<const int32_t> values);
  void add_numbers(std::string_view key, std::span<const float> values);
  void add_booleans(std::string_view key, const std::vector<bool>& values);

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void begin(std::string_view key, GgufType type);
  void begin_array(std::string_view key, GgufType type, size_t elements);

  uint64_t count_ = 0;
  std::string bytes_;
};

// The place of a file among those of a model.
struct GgufPlace {
  size_t file = 0;
  size_t files = 1;
  size_t tensors = 0;  // of all files
};

// The first file has the metadata; each has its own tensors.
struct GgufLayout {
  std::string header;             // up to the data
  std::vector<uint64_t> padding;  // behind the data of each tensor, bytes
  uint64_t file_bytes = 0;
};
GgufLayout lay_out_gguf(const GgufMetadata& metadata, const GgufPlace& place,
                        std::span<const TensorToWrite> tensors);

}  // namespace sluice::io
