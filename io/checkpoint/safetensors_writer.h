// Writes safetensors files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
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

// Writes the tensors to `path`, each aligned to its element's size. The file appears under its name
// only when it is complete; one that was there before is replaced then. (What is no regular file, a
// pipe say, is written to directly.) Throws Error(runtime) naming the file and the reason.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors);

}  // namespace sluice::io
