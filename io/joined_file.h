// A file that is not there as one: other files have its bytes, as the parts of matrices that were
// cut by rows or by columns. A reader scatters rows of each part to where they belong, on pread's
// threads and through the page cache, whatever kind was asked for.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/system_calls.h"

namespace sluice::io {

struct JoinedFile {
  // Rows of one part, which follow one another in its file.
  struct Strip {
    uint32_t part = 0;  // index into `parts`
    uint64_t offset = 0;
    uint64_t row_bytes = 0;
  };
  // Rows of the joined file, each of which has a row of every strip, in their order.
  struct Band {
    uint64_t begin = 0;
    uint64_t rows = 0;
    std::vector<Strip> strips;

    uint64_t row_bytes() const;
    uint64_t end() const { return begin + rows * row_bytes(); }
  };
  std::vector<CheckpointFile> parts;
  std::vector<Band> bands;  // in the order of their bytes; none have bytes in common
};

CheckpointFile joined_file(std::string name, JoinedFile file);

// Bytes of a part that follow one another, and the places in memory that they go to in turn.
struct Scatter {
  uint32_t part = 0;
  uint64_t offset = 0;
  std::span<iovec> to;
};
// Calls `read` for all that the joined file's bytes from `offset` on consist of. Bytes between
// bands stay as they are.
void scatter(const JoinedFile& file, uint64_t offset, std::span<std::byte> to,
             const std::function<void(const Scatter&)>& read);

// Reads one of these from the open file of its part. A file that ends earlier "changed while it was
// being read". Error(runtime).
void read_scattered(const Scatter& read, int fd, const std::string& path, const SystemCalls& calls);

}  // namespace sluice::io
