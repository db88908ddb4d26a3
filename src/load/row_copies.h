// Matrices that a checkpoint stores as [inputs, outputs], GPTQ's codes among them, copied by rows
// ([outputs, inputs]) into a file of the spill directory, so that they can be streamed. The file is
// written once for a checkpoint, before the first load that needs it; later loads reuse it.
//
//   file   header (kSpillHeaderBytes, as of a spill file) | a tensor, from a multiple of 4096 on |
//   ...
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "io/checkpoint/index.h"
#include "io/new_file.h"
#include "src/load/spill.h"
#include "src/models/families.h"
#include "src/plan/gptq.h"

namespace sluice {

class RowCopies {
 public:
  // Copies of the tensors that `model` reads transposed, in the first directory of `spill`. The
  // file may exist already. `checkpoint`: its directory, canonical. Index and model outlive
  // this.
  RowCopies(const io::CheckpointIndex& index, Model& model, const std::filesystem::path& checkpoint,
            const SpillOptions& spill);

  bool empty() const { return copies_.empty(); }
  // The checkpoint, with the copies in place of the stored tensors while they are in use.
  const io::CheckpointIndex& index() const { return in_use_ ? *turned_ : index_; }
  bool in_use() const { return in_use_; }
  // Makes the model's pieces views of the copies, or of the stored tensors again. Earlier plans
  // become invalid.
  void use(bool copies);

  // Writes the file unless it exists. Returns true if it was written: earlier plans are then
  // invalid. `memory`: scratch of a few rows of a tensor at least (else Error(no_fit)).
  // Error(runtime) where the disk has no room, another process writes it, or `stop` is requested.
  bool write(std::span<std::byte> memory, const std::stop_token& stop);

 private:
  struct Copy {
    const io::StoredTensor* of = nullptr;
    int64_t matrices = 1;  // number of matrices in a stack
    int64_t inputs = 0;
    int64_t outputs = 0;
    uint64_t offset = 0;  // in the file
    uint64_t bytes = 0;
    const Piece* gptq = nullptr;  // whose codes they are; null: elements of the tensor's type
  };
  void find_copies();
  void add_transposed(Piece& piece);
  void add_gptq(const Piece& piece, GptqBinder& binder);
  void add(Copy copy);
  std::optional<io::CheckpointFile> existing() const;
  void set_file(io::CheckpointFile file);
  std::string fingerprint() const;
  void make_room() const;
  void keep();
  void turn_all(const io::NewFile& to, std::span<std::byte> memory,
                const std::stop_token& stop) const;
  void turn(const Copy& copy, int64_t matrix, const io::NewFile& to, std::span<std::byte> memory,
            const std::stop_token& stop) const;

  const io::CheckpointIndex& index_;
  Model& model_;
  std::string checkpoint_;
  std::optional<std::string> limit_;
  std::filesystem::path path_;
  std::optional<GptqConfig> gptq_;
  std::vector<Copy> copies_;
  std::unordered_set<std::string_view> seen_;  // tensors of copies_
  uint64_t file_bytes_ = 0;
  std::optional<io::CheckpointIndex> turned_;
  std::vector<Piece*> pieces_;  // pieces that can be views of the copies
  bool in_use_ = false;
  io::Fd lock_;  // shared: nobody removes the file for want of room
};

}  // namespace sluice
