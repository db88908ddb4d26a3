// Copies stored bytes of a checkpoint's files, as they are, to a file that is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stop_token>
#include <vector>

#include "io/checkpoint/index.h"
#include "io/checkpoint/read_tensors.h"

namespace sluice {

// Neighbours are read at once.
class Copier {
 public:
  // All outlive this. `block`: for what is copied.
  Copier(const io::CheckpointIndex& index, std::span<std::byte> block, const std::stop_token& stop);
  using Write = std::function<void(std::span<const std::byte>)>;
  void use(Write write) { write_ = std::move(write); }
  void write(std::span<const std::byte> bytes) { write_(bytes); }

  // Bytes of a file, which are written at flush() or before. Error(runtime) where they cannot be
  // read, or a stop is requested.
  void copy(uint32_t file, uint64_t offset, uint64_t bytes);
  void flush();

 private:
  std::span<std::byte> block_;
  const std::stop_token& stop_;
  std::vector<io::OpenBytes> files_;
  Write write_;
  uint32_t file_ = 0;
  uint64_t offset_ = 0, bytes_ = 0;
};

}  // namespace sluice
