// Matrices that a checkpoint stores as [inputs, outputs], codes among them, copied by rows
// ([outputs, inputs]) into a file of the spill directory, so that they can be streamed. The file is
// written once for a checkpoint, before the first load that needs it; later loads reuse it. Pages
// that are read are compared with their checksums, which stay in memory. A file that is damaged or
// cannot be read is made again from the checkpoint.
//
//   file   header (kSpillHeaderBytes, as of a spill file) | a tensor, from a multiple of 4096 on |
//          ... | index: XXH3-64 of each page of 4096 bytes behind the header
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
#include "src/base/error.h"
#include "src/formats/formats.h"
#include "src/load/spill.h"
#include "src/load/summed_output.h"
#include "src/memory/buffer.h"
#include "src/models/families.h"
#include "src/plan/read_plan.h"
#include "src/plan/spill_layout.h"

namespace sluice {

// The bytes read from a copy differ from its checksum.
struct CopyDamaged : Error {
  CopyDamaged(const std::filesystem::path& file, const std::string& tensor)
      : Error(ErrorKind::runtime,
              fmt::format("{}: its copy of {} is damaged", io::printable(file.string()), tensor)) {}
};

class RowCopies {
 public:
  // Copies of the tensors that `model` reads transposed, in the first directory of `spill`. The
  // file may exist already. `checkpoint`: its directory, canonical. Index and model outlive
  // this.
  RowCopies(const io::CheckpointIndex& index, const Model& model,
            const std::filesystem::path& checkpoint, const SpillOptions& spill);

  bool empty() const { return copies_.empty(); }
  // The copies, as lay_out() takes them, whether they are written or not.
  const RowCopyTensors& tensors() const { return tensors_; }
  // The files of the checkpoint, and behind them that of the copies: from which a plan with
  // Origin::row_copies is read.
  const io::CheckpointIndex& files() const { return *files_; }
  // Bytes of the checksums, which write() leases.
  uint64_t index_bytes() const {
    return (copies_end() - kSpillHeaderBytes) / SummedOutput::kPageBytes * sizeof(uint64_t);
  }

  // Writes the file unless it exists. `memory`: scratch of a few rows of a tensor at least (else
  // Error(no_fit)). Error(runtime) where the disk has no room, another process writes it, or `stop`
  // is requested, which outlives this.
  void write(Ledger& ledger, std::span<std::byte> memory, const std::stop_token& stop);

  // After write(), for who reads the copies: the number of their file in files(), and its pages
  // with an extent.
  uint32_t file() const { return static_cast<uint32_t>(index_.files().size()); }
  struct Pages {
    uint64_t offset = 0;
    uint64_t length = 0;
  };
  static Pages pages_of(uint64_t offset, uint64_t length);
  // Throws CopyDamaged unless the pages, of which the first has `offset`, are what was written.
  void check(uint64_t offset, std::span<const std::byte> pages) const;
  // Removes the file, which is damaged or cannot be read, and makes it again, as write() does.
  // Takes the file in its place where another process has done so. Nothing may read it meanwhile.
  // Plans remain valid. Error(runtime) where that is no use.
  void make_again(const std::string& why, std::span<std::byte> memory);

 private:
  struct Copy {
    const io::StoredTensor* of = nullptr;
    int64_t matrices = 1;  // number of matrices in a stack
    int64_t inputs = 0;
    int64_t outputs = 0;
    uint64_t offset = 0;  // in the file
    uint64_t bytes = 0;
    const Piece* grouped = nullptr;  // owner of grouped codes; null: elements of the tensor's type
  };
  void find_copies();
  void add_transposed(const Piece& piece);
  void add_grouped(const Piece& piece, StoredFormats& formats);
  void add(Copy copy);
  uint64_t copies_end() const;
  std::span<uint64_t> checksums() const;
  std::optional<io::CheckpointFile> existing() const;
  void plan_file(io::CheckpointFile file);
  bool is_what_the_checkpoint_gives(std::span<std::byte> memory) const;
  std::string fingerprint() const;
  void make_room() const;
  void make(std::span<std::byte> memory);
  void keep();
  void turn_all(SummedOutput& to, std::span<std::byte> memory) const;
  void copy_grouped(const Copy& copy, SummedOutput& to, std::span<std::byte> memory) const;
  void copy_transposed(const Copy& copy, int64_t matrix, SummedOutput& to,
                       std::span<std::byte> memory) const;

  const io::CheckpointIndex& index_;
  const Model& model_;
  std::string checkpoint_;
  std::optional<std::string> limit_;
  std::filesystem::path path_;
  std::vector<Copy> copies_;
  std::unordered_set<std::string_view> seen_;  // tensors of copies_
  uint64_t file_bytes_ = 0;                    // without what follows the last tensor
  RowCopyTensors tensors_;
  std::optional<io::CheckpointIndex> files_;
  bool verify_;  // before the file of an earlier run is used
  std::stop_token stop_;
  Buffer index_memory_;
  int made_again_ = 0;
  io::Fd lock_;  // shared: nobody removes the file for want of room
};

}  // namespace sluice
