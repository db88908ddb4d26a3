#include "src/load/column_reader.h"

#include <fcntl.h>

namespace sluice {

ColumnReader::ColumnReader(const io::CheckpointIndex& index, const io::StoredTensor& stored,
                           uint64_t first, int64_t rows, uint64_t row_bytes)
    : file_(index.files()[stored.file]),
      stored_(stored),
      first_(first),
      rows_(rows),
      row_bytes_(row_bytes),
      fd_(io::open_regular(file_.path)) {}

ColumnReader::~ColumnReader() {
  posix_fadvise(fd_.get(), static_cast<off_t>(stored_.offset), static_cast<off_t>(stored_.bytes),
                POSIX_FADV_DONTNEED);
}

void ColumnReader::read(uint64_t column, uint64_t bytes, std::byte* to) const {
  for (int64_t r = 0; r < rows_; ++r, to += bytes) {
    const uint64_t at = stored_.offset + first_ + static_cast<uint64_t>(r) * row_bytes_ + column;
    io::read_exactly(fd_, file_.path, at, {reinterpret_cast<char*>(to), bytes});
  }
}

}  // namespace sluice
