// A checkpoint's content, from headers alone. Every format ends in this one type; nothing above
// io/checkpoint knows which it was. All numbers in it are already checked against the files:
// extents lie inside them, bytes = shape x type (src/base/dtype.h), names are unique.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/file.h"
#include "io/model_directory.h"
#include "src/base/dtype.h"
#include "src/base/shape.h"

namespace sluice::io {

struct StoredTensor {
  std::string name;
  DType dtype = DType::bf16;
  Shape shape;          // row-major, contiguous
  uint32_t file = 0;    // index into CheckpointIndex::files
  uint64_t offset = 0;  // bytes from the start of the file
  uint64_t bytes = 0;
  bool listed = true;  // in the checkpoint's index, where it has one
  // Its last two dimensions are stored in the other order, and so they are in `shape`: what the
  // checkpoint calls [outputs, inputs] lies as [inputs, outputs].
  bool column_major = false;
};

// One file of a checkpoint.
struct TensorFile {
  CheckpointFile file;
  std::vector<StoredTensor> tensors;  // with file = 0; in the order of their data
};

// A copy of one of the checkpoint's files, in another directory.
struct FileCopy {
  uint32_t of = 0;  // index into CheckpointIndex::files
  CheckpointFile file;
};

// Tensors that the checkpoint's own index names, and that are not there: their file is missing, or
// lacks them. Whoever needs one refuses the checkpoint.
struct AbsentTensors {
  std::string place;  // the file, in messages
  bool file_is_there = false;
  std::string hint;                // for the end of a message
  std::vector<std::string> names;  // sorted
};

// Refuses a tensor whose name no one could print, whose shape and dtype do not give its bytes, or
// that does not lie inside its file. Names the file and the tensor.
void check_tensor(const StoredTensor& tensor, const CheckpointFile& file);

class CheckpointIndex {
 public:
  // Checks what holds for every format (check_tensor, unique names) and throws Error(refused)
  // otherwise.
  CheckpointIndex(std::vector<CheckpointFile> files, std::vector<StoredTensor> tensors,
                  std::vector<std::string> warnings);

  const std::vector<CheckpointFile>& files() const { return files_; }
  const std::vector<FileCopy>& copies() const { return copies_; }
  void add_copy(FileCopy copy) { copies_.push_back(std::move(copy)); }
  // In disk order: file, then offset.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;  // null when there is none
  const std::vector<AbsentTensors>& absent() const { return absent_; }
  void add_absent(AbsentTensors tensors) { absent_.push_back(std::move(tensors)); }
  // True if it is there, or ought to be.
  bool is_named(std::string_view name) const;
  // Throws Error(refused) that names the file, where `name` ought to be there and is not.
  void refuse_absent(std::string_view name) const;
  // Sentences about what is odd but harmless (total_size disagrees, ...), to be shown once.
  const std::vector<std::string>& warnings() const { return warnings_; }
  uint64_t total_bytes() const;  // of all tensors
  // The number of ranks for which the checkpoint is cut: its tensors are one rank's parts. 1:
  // whole.
  int ranks() const { return ranks_; }
  void set_ranks(int ranks) { ranks_ = ranks; }
  // One line for each file, which changes when the file is replaced. Here and below files whose
  // bytes are checked in another way (CheckpointFile::ctime_ns) do not count.
  std::string identity() const;
  // Throws Error(runtime) where a file has been written to since its header was read: what was read
  // from it may be anything. One that became shorter fails where it is read, and then a copy, if
  // there is one, takes its place.
  void refuse_changes() const;

 private:
  std::vector<CheckpointFile> files_;
  std::vector<FileCopy> copies_;
  std::vector<StoredTensor> tensors_;
  std::vector<AbsentTensors> absent_;
  std::vector<uint32_t> by_name_;  // indices into tensors_, in the order of names
  std::vector<std::string> warnings_;
  int ranks_ = 1;
};

// The rank that opens a checkpoint, of so many.
struct OpeningRank {
  int rank = 0;
  int ranks = 1;
};

// Reads the headers of the checkpoint in `directory`: the first container of kContainers (open.cc)
// that is there. Throws Error(refused) with one sentence that names file, tensor and fault.
//
// Each of `mirrors` is a directory with some or all of the checkpoint's weight files, on another
// disk say. A file that `directory` lacks is taken from the first that has it; further ones are
// copies, and refused when their headers differ.
//
// A checkpoint that is cut for ranks has files for each (model-rank-RANK-part-PART.safetensors), of
// which those of `rank` are opened; it is refused unless there are as many ranks.
CheckpointIndex open_checkpoint(const ModelDirectory& directory,
                                std::span<const std::filesystem::path> mirrors = {},
                                OpeningRank rank = {});

// Returns the name of the rank's file of a GGUF model that is cut for ranks,
// model-rank-RANK-part-0.gguf; empty where `directory` has none of any rank. Error(refused) unless
// there are as many ranks.
std::string rank_gguf(const std::filesystem::path& directory, OpeningRank rank);

// The name of the container that open_checkpoint chooses in `directory`; empty where it is known by
// its content only.
std::string container_name(const std::filesystem::path& directory);

}  // namespace sluice::io
