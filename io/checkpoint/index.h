// What a checkpoint holds, from headers alone. Every format ends in this one type; nothing above
// io/checkpoint knows which it was. All numbers in it are already checked against the files:
// extents lie inside them, bytes = elements x dtype, names are unique.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "src/base/dtype.h"
#include "src/base/shape.h"

namespace sluice::io {

// A file of the checkpoint as it was when its header was read; readers refuse it when it has
// changed since.
struct CheckpointFile {
  std::string name;            // as the index names it, relative to the checkpoint's directory
  std::filesystem::path path;  // to open
  uint64_t size = 0;           // bytes
  int64_t mtime_ns = 0;
  uint64_t inode = 0;
};

struct StoredTensor {
  std::string name;
  DType dtype = DType::bf16;
  Shape shape;          // row-major, contiguous
  uint32_t file = 0;    // index into CheckpointIndex::files
  uint64_t offset = 0;  // bytes from the start of the file
  uint64_t bytes = 0;
};

class CheckpointIndex {
 public:
  // Checks what holds for every format (unique names, extents inside files) and throws
  // Error(refused) otherwise.
  CheckpointIndex(std::vector<CheckpointFile> files, std::vector<StoredTensor> tensors,
                  std::vector<std::string> warnings);

  const std::vector<CheckpointFile>& files() const { return files_; }
  const std::vector<StoredTensor>& tensors() const {
    return tensors_;
  }                                                       // in disk order: file, then offset
  const StoredTensor* find(std::string_view name) const;  // null when there is none
  // Sentences about what is odd but harmless (total_size disagrees, trailing bytes, ...), to be
  // shown once.
  const std::vector<std::string>& warnings() const { return warnings_; }
  uint64_t total_bytes() const;  // of all tensors

 private:
  std::vector<CheckpointFile> files_;
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
  std::vector<std::string> warnings_;
};

// Reads the headers of the checkpoint in `directory` (model.safetensors, or
// model.safetensors.index.json and its shards). Throws Error(refused) with one sentence that names
// file, tensor and fault.
CheckpointIndex open_checkpoint(const std::filesystem::path& directory);

}  // namespace sluice::io
