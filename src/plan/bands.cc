#include "src/plan/bands.h"

#include <algorithm>
#include <cmath>

#include "src/plan/read_plan.h"
#include "src/plan/rows_in_file.h"

namespace sluice {

Bands::Bands(std::span<const uint64_t> own, uint64_t shared) {
  constexpr int64_t kParts = 4096;            // of an equal share
  constexpr double kFewest = 0.5, kMost = 2;  // of it, so that tiles have a row for each rank
  const auto ranks = std::ssize(own), all = static_cast<int64_t>(shared);
  int64_t sum = all;
  for (uint64_t bytes : own) sum += static_cast<int64_t>(bytes);
  ends_.clear();
  for (uint64_t bytes : own) {
    const auto missing = static_cast<double>(sum - ranks * static_cast<int64_t>(bytes));
    const double share =
        all == 0 ? 1 : std::clamp(missing / static_cast<double>(all), kFewest, kMost);
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + std::llround(kParts * share));
  }
}

int64_t Bands::begin(int64_t rows, int rank) const {
  if (rank == 0) return 0;
  return ends_.empty() ? rows : rows * ends_[static_cast<size_t>(rank - 1)] / ends_.back();
}

uint64_t largest_share(const ReadPlan& plan, const TensorPlan& t) {
  if (plan.rank.size == 1 || plan.own_files) return 0;
  uint64_t most = 0;
  for (int r = 0; r < plan.rank.size; ++r) {
    const auto share = row_share(*plan.params[t.param].param, t, {r, plan.rank.size});
    if (!share) return 0;
    most = std::max(most, share->bytes);
  }
  return most;
}

namespace {

// Bytes of each output of a piece, as it is stored.
double output_bytes(const TensorPlan& t) {
  const Shape& shape = t.stored->shape;
  const int64_t outputs = t.matrix->kept ? t.matrix->outputs
                          : t.transposed ? shape[shape.size() - 1]
                                         : shape[shape.size() - 2];
  return static_cast<double>(t.stored->bytes / t.matrices) / static_cast<double>(outputs);
}

}  // namespace

Bands read_bands(const ReadPlan& plan) {
  const int ranks = plan.rank.size;
  if (ranks == 1 || plan.own_files) return {};
  std::vector<uint64_t> own(static_cast<size_t>(ranks));
  uint64_t shared = 0;
  for (const TensorPlan& t : plan.tensors) {
    const Piece& piece = plan.params[t.param].param->pieces[t.piece];
    if (piece.vector || t.stored->shape.size() < 2) continue;
    if (largest_share(plan, t) > 0) {
      shared += t.rows.bytes();
      continue;
    }
    for (int r = 0; r < ranks; ++r) {
      const Cut cut = piece.shard.cut(piece.rows, piece.cols, {r, ranks});
      own[static_cast<size_t>(r)] +=
          static_cast<uint64_t>(output_bytes(t) * static_cast<double>(cut.rows));
    }
  }
  return {own, shared};
}

}  // namespace sluice
