// Writes safetensors files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "io/block_output.h"
#include "src/base/dtype.h"
#include "src/base/shape.h"

namespace sluice::io {

struct TensorToWrite {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

// The bytes of a tensor's data.
uint64_t data_bytes(const TensorToWrite& tensor);

// The tensors of a file, and where their data lie. They are sorted by the size of their elements,
// so that all are aligned, and tensors of one size by their lane: tensors whose data come in order.
struct SafetensorsLayout {
  struct Lane {
    int element_bytes = 1;
    int lane = 0;
    uint64_t begin = 0;  // bytes of the file
    uint64_t end = 0;
  };
  std::string header;  // with its length in front, and padded
  std::vector<Lane> lanes;
  uint64_t file_bytes = 0;

  // The place in `lanes` of tensors with elements of this type.
  size_t find(DType dtype, int lane) const;
};

// `lanes`: of each tensor. Tensors of a lane keep their order.
SafetensorsLayout lay_out_safetensors(std::span<const TensorToWrite> tensors,
                                      std::span<const int> lanes);

// Writes a file whose data come bit by bit; nothing but a block of them is held.
class SafetensorsWriter {
 public:
  // `tensor` describes the i-th of `count` tensors, whose names differ; the sizes of their elements
  // do not grow from one to the next, so that all are aligned. It is asked more than once, here.
  // The rest is as of BlockOutput.
  SafetensorsWriter(const std::filesystem::path& path, size_t count,
                    const std::function<TensorToWrite(size_t)>& tensor, std::span<std::byte> block,
                    const std::stop_token& stop);

  // Writes the next bytes of the tensors (row-major, little-endian).
  void write(std::span<const std::byte> bytes) { out_->write(bytes); }
  // Once all are written.
  void finish() { out_->finish(); }

 private:
  void write_header(size_t count, const std::function<TensorToWrite(size_t)>& tensor,
                    uint64_t header_bytes);

  std::optional<BlockOutput> out_;
};

}  // namespace sluice::io
