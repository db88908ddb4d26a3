// The bands of rows that ranks read for each other, where each needs a part of every row. Ranks
// whose other parts are larger, as where KV heads are divided unevenly, read fewer of these rows,
// so that all read as many bytes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

struct ReadPlan;
struct TensorPlan;

class Bands {
 public:
  // One rank reads all rows.
  Bands() = default;
  // `own`: bytes that each rank reads for itself alone. `shared`: that they read for each other.
  Bands(std::span<const uint64_t> own, uint64_t shared);
  // Returns the first of so many rows that a rank reads; of the rank after the last their end.
  int64_t begin(int64_t rows, int rank) const;

 private:
  std::vector<int64_t> ends_;  // of each rank's share of the rows, in parts of the last of them
};

// Returns the most bytes that a rank has of a tensor's rows, of which all ranks have parts; 0: each
// reads for itself.
uint64_t largest_share(const ReadPlan& plan, const TensorPlan& tensor);

// Returns the bands of a plan whose tensors are laid out: the same on all ranks.
Bands read_bands(const ReadPlan& plan);

}  // namespace sluice
