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
  struct Tensors {
    std::string descriptions;
    std::vector<uint64_t> bytes;  // of each, the last one's first
    uint64_t end = 0;             // of the data, from their beginning
  };
  static Tensors describe(const GgufHeader& like, size_t count,
                          const std::function<TensorToWrite(size_t)>& tensor);
  GgufWriter(const std::filesystem::path& path, const GgufHeader& like, std::string config_key,
             Tensors tensors, std::span<std::byte> block, const std::stop_token& stop);
  void write_metadata(const GgufHeader& like);

  uint64_t alignment_;
  std::vector<uint64_t> left_;  // bytes of each tensor that is not complete, the last one's first
  BlockOutput out_;
};

}  // namespace sluice::io
