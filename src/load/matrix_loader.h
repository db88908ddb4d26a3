// Loads matrices of a plan some rows at a time, by plans of their own, into memory that all of them
// share. Matrices that are written to a file take the road of a load so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>

#include "io/checkpoint/index.h"
#include "kernels/kernels.h"
#include "src/load/fetcher.h"
#include "src/plan/read_plan.h"
#include "src/plan/spill_window.h"

namespace sluice {

// Everything referred to outlives the loader.
struct MatrixLoading {
  const io::CheckpointIndex& index;
  const LoadOptions& options;   // the spill does not count
  std::span<std::byte> memory;  // begins a page; with room for some rows of each matrix
  std::stop_token stop;
};

// Rows [first, first + rows) of a matrix, as the plan has them in memory.
struct MatrixRows {
  Weight encoded;  // begins with the first
  int64_t first = 0;
  int64_t rows = 0;
  EncodeStats stats;
  float amax = 0;  // of the matrix, where it has one scale
};

class MatrixLoader {
 public:
  explicit MatrixLoader(const MatrixLoading& loading);

  // Gives `take` the rows of a plan's tensor from the first on, until it returns false.
  // Error(no_fit) where the memory has no room; Error(runtime) where files cannot be read, or a
  // stop is requested; Error(refused) for damaged weights; and what `take` throws.
  using Take = std::function<bool(const MatrixRows&)>;
  // `together`: rows at once are a multiple of it, or all.
  void load(const ReadPlan& plan, uint32_t tensor, const Take& take, int64_t together = 1);
  // The same of rows [first, end), and of those before and behind them that are read with them.
  void load(const ReadPlan& plan, uint32_t tensor, int64_t first, int64_t end, const Take& take,
            int64_t together = 1);

 private:
  float measured(const ReadPlan& plan, uint32_t tensor, const SpillWindow& window);
  MatrixRows load_rows(const ReadPlan& plan, uint32_t tensor, int64_t first, int64_t rows,
                       const SpillWindow& window, std::optional<float> amax);
  EncodeStats load_part(const ReadPlan& part, std::span<const Weight> weights, Measured& measured,
                        const SpillWindow& window, std::span<std::byte> row_amax);

  const MatrixLoading loading_;
  LoadOptions options_;
  std::unique_ptr<Encoder> encoder_ = make_cpu_encoder(Isa::automatic);
};

}  // namespace sluice
