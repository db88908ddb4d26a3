// Writes a model as GGUF files of bounded size. Rows of matrices take the road of a load, some at a
// time, in memory that does not depend on the model, and become the type that the file has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "src/load/checkpoint_writer.h"
#include "src/load/gguf_model.h"
#include "src/load/output_file.h"

namespace sluice {

struct GgufWriting {
  const GgufModel& model;
  const io::CheckpointIndex& index;
  uint64_t most_file_bytes = 0;
  bool verify = false;  // read each file back
  LoadOptions options;
  std::stop_token stop;
};

class GgufOutput {
 public:
  explicit GgufOutput(GgufWriting writing);

  uint64_t least_memory() const;
  // Bytes of the disk that files which are not finished need.
  uint64_t needed_bytes(const OutputDirectory& out) const;

  // Does what CheckpointWriter::write() does.
  WriteReport write(OutputDirectory& out, std::span<std::byte> memory, WriteProgress& progress);

 private:
  // The tensors [first, end) of the model.
  struct File {
    OutputFile file = {};
    size_t first = 0;
    size_t end = 0;
    io::GgufLayout layout = {};
  };
  struct Work;
  std::span<const GgufTensor> tensors_of(const File& file) const;
  void divide();
  // Bytes for rows that are made together, and the load of them.
  uint64_t least_to_make(const ReadPlan& plan, const GgufRows& rows, const GgufTensor& of) const;
  void write_tensor(const GgufTensor& tensor, Work& work) const;
  void write_vector(const GgufTensor& tensor, Work& work) const;
  void write_rows(const ReadPlan& plan, const GgufRows& rows, const GgufTensor& tensor,
                  Work& work) const;
  // `row_of(row, to)` makes the floats of a row before its columns change places.
  template <class RowOf>
  void make_rows(int64_t count, const GgufTensor& tensor, Work& work, RowOf row_of) const;
  void make_turned(const MatrixRows& loaded, const GgufRows& rows, const GgufTensor& tensor,
                   Work& work) const;

  GgufWriting writing_;
  std::vector<File> files_;
};

}  // namespace sluice
