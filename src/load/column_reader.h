// Some columns of a matrix that a checkpoint stores row by row: for what has its outputs in them.
#pragma once

#include <cstdint>

#include "io/checkpoint/index.h"
#include "io/file.h"

namespace sluice {

class ColumnReader {
 public:
  // `rows` rows of `row_bytes`, from byte `first` of the tensor on. `index` outlives it.
  ColumnReader(const io::CheckpointIndex& index, const io::StoredTensor& stored, uint64_t first,
               int64_t rows, uint64_t row_bytes);
  // Drops the tensor's pages from the page cache.
  ~ColumnReader();
  ColumnReader(const ColumnReader&) = delete;

  // Bytes [column, column + bytes) of each row, one after another. Error(runtime).
  void read(uint64_t column, uint64_t bytes, std::byte* to) const;

 private:
  const io::CheckpointFile& file_;
  const io::StoredTensor& stored_;
  uint64_t first_;
  int64_t rows_;
  uint64_t row_bytes_;
  io::Fd fd_;
};

}  // namespace sluice
