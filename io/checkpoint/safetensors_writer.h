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

#include "io/new_file.h"
#include "io/stream.h"
#include "src/base/dtype.h"
#include "src/base/shape.h"

namespace sluice::io {

struct TensorToWrite {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

// Writes a file whose data come bit by bit; nothing but a block of them is held. A regular file
// takes its room on the disk at once, and appears under its name, in place of what was there, when
// it is complete; a link stays, and what it links to changes. What is no regular file, a pipe say,
// is written to as it is.
class SafetensorsWriter {
 public:
  // `tensor` describes the i-th of `count` tensors, whose names differ; the sizes of their elements
  // do not grow from one to the next, so that all are aligned. It is asked more than once, here.
  // `block` outlives this and is fastest where it begins and ends at multiples of kDirectAlignment.
  // Throws Error(runtime) naming the file and the reason, Error(refused) where another process
  // writes it.
  SafetensorsWriter(std::filesystem::path path, size_t count,
                    const std::function<TensorToWrite(size_t)>& tensor, std::span<std::byte> block,
                    const std::stop_token& stop);

  // Writes the next bytes of the tensors (row-major, little-endian).
  void write(std::span<const std::byte> bytes);
  // Once all are written.
  void finish();

 private:
  void write_header(size_t count, const std::function<TensorToWrite(size_t)>& tensor,
                    uint64_t header_bytes);
  void put(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void flush();

  std::span<std::byte> block_;
  size_t filled_ = 0;    // bytes of it
  uint64_t offset_ = 0;  // of the block in the file
  uint64_t bytes_ = 0;   // that the file will have
  std::optional<NewFile> file_;
  std::optional<OutputStream> stream_;
};

}  // namespace sluice::io
