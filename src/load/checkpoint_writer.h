// Writes a standard checkpoint: safetensors files of bounded size and their index, of tensors that
// are copied, converted or quantized. What is not copied takes the road of a load, some rows at a
// time, in memory that does not depend on the model.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "io/checkpoint/index.h"
#include "io/checkpoint/safetensors_writer.h"
#include "src/formats/written_format.h"
#include "src/load/copier.h"
#include "src/load/hub_rows.h"
#include "src/load/matrix_loader.h"
#include "src/load/output_directory.h"

namespace sluice {

struct TensorToStore {
  // A tensor that is stored, whose matrices may become BF16; or one that is made of rows of a plan,
  // of numbers of a type. Both may become codes.
  const io::StoredTensor* stored = nullptr;
  bool to_bf16 = false;
  const HubTensor* made = nullptr;
  DType dtype = DType::bf16;
  const WrittenFormat* format = nullptr;

  const std::string& name() const { return made != nullptr ? made->name : stored->name; }
  // Its bytes stay as they are.
  bool is_copied() const;
  // The tensors that it becomes; "weight" of their names belongs to the layer.
  std::vector<io::TensorToWrite> written() const;
  Shape shape() const;
  // With a format.
  WrittenMatrix matrix() const;
  WeightFormat encoded_format() const;  // of what is made
  // The bytes of it, stored or made.
  uint64_t bytes() const;
  // The load of `stored` by itself.
  ReadPlan lay_out(Param& param) const;
};

struct CheckpointWriting {
  const io::CheckpointIndex& index;
  const ReadPlan* plan = nullptr;  // of what is made
  std::vector<TensorToStore> tensors;
  uint64_t most_file_bytes = 0;
  bool verify = false;  // read each file back
  LoadOptions options = {};
  std::stop_token stop;
};

// Written by the writer, read by any thread.
struct WriteProgress {
  std::atomic<uint64_t> bytes_total{0};  // as stored
  std::atomic<uint64_t> bytes_done{0};
  std::atomic<uint32_t> files_total{0};
  std::atomic<uint32_t> files_done{0};
};

struct WriteReport {
  uint64_t bytes = 0;  // of all files
  size_t files = 0;
  size_t kept_files = 0;      // of an interrupted run
  double largest_error = 0;   // relative RMS error of a quantized tensor
  std::string least_exact{};  // its name
};

class CheckpointWriter {
 public:
  // Error(refused) for tensors that safetensors cannot hold: of names that collide, or with
  // dimensions exchanged.
  explicit CheckpointWriter(CheckpointWriting writing);

  // Bytes that suffice for any model, and those without which nothing works.
  static constexpr uint64_t kMostMemory = 64 << 20;
  uint64_t least_memory() const;
  // Bytes of the disk that files which are not finished need.
  uint64_t needed_bytes(const OutputDirectory& out) const;

  // Writes the files that are not finished, and the index where there are several. `memory` begins
  // a page. Error(refused) for damaged weights, Error(no_fit) where the memory has no room,
  // Error(runtime) for faults of files, or where a stop is requested.
  WriteReport write(OutputDirectory& out, std::span<std::byte> memory, WriteProgress& progress);

 private:
  // The tensors [first, end) of the list.
  struct File {
    std::string name;
    size_t first = 0;
    size_t end = 0;
  };
  struct Work;
  std::span<const TensorToStore> tensors_of(const File& file) const;
  void refuse_collisions() const;
  void divide();
  void write_file(const File& file, Work& work);
  void write_tensor(const TensorToStore& tensor, const std::vector<size_t>& lanes, Work& work);
  void make_tensor(const TensorToStore& tensor, const std::vector<size_t>& lanes, Work& work);
  void quantize_tensor(const TensorToStore& tensor, const WrittenFormat::Write& write, Work& work);
  uint64_t least_to_make() const;
  void write_index(const OutputDirectory& out, std::span<std::byte> block) const;

  CheckpointWriting writing_;
  std::vector<File> files_;
};

}  // namespace sluice
