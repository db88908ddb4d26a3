// Writes GGUF files with the metadata of another one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "io/block_output.h"
#include "io/checkpoint/gguf.h"
#include "io/checkpoint/safetensors_writer.h"

namespace sluice::io {

inline constexpr uint32_t kGgufVersion = 3;

// Descriptions of tensors whose data follow one another, as a file has them before the data.
struct GgufDescriptions {
  std::string text;
  std::vector<uint64_t> bytes;  // of each tensor
  uint64_t end = 0;             // of the data, from their beginning
};
// `tensor` describes the i-th of `count` tensors.
GgufDescriptions describe_gguf_tensors(size_t count,
                                       const std::function<TensorToWrite(size_t)>& tensor,
                                       uint64_t alignment);

class GgufWriter {
 public:
  // `like`: the file whose metadata it gets, but for what says that a model is in several files.
  // `config`: of kGgufCutConfig.
  // `tensor` describes the i-th of `count` tensors, whose names differ. The rest is as of
  // BlockOutput.
  GgufWriter(const std::filesystem::path& path, const GgufHeader& like, std::string_view config,
             size_t count, const std::function<TensorToWrite(size_t)>& tensor,
             std::span<std::byte> block, const std::stop_token& stop);

  // Writes the next bytes of the tensors.
  void write(std::span<const std::byte> bytes);
  // Once all are written.
  void finish();

 private:
  GgufWriter(const std::filesystem::path& path, const GgufHeader& like, std::string config_key,
             GgufDescriptions tensors, std::span<std::byte> block, const std::stop_token& stop);
  void write_metadata(const GgufHeader& like);

  uint64_t alignment_;
  std::vector<uint64_t> left_;  // bytes of each tensor that is not complete, the last one's first
  BlockOutput out_;
};

}  // namespace sluice::io
