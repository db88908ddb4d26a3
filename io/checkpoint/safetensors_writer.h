// Writes safetensors files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <stop_token>
#include <string>

#include "src/base/dtype.h"
#include "src/base/shape.h"

namespace sluice::io {

struct TensorToWrite {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
  std::span<const std::byte> bytes;  // row-major, little-endian: elements x dtype
};

// Writes the tensors to `path` as write_whole() does, each aligned to its element's size. Throws
// Error(runtime) naming the file and the reason.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const std::stop_token& stop = {});

}  // namespace sluice::io
