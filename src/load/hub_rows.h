// Makes the rows of tensors in the hub's form (src/plan/hub_form.h): loads the source's rows that
// they are made of, decodes them, and puts them in the hub's order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "src/base/thread_pool.h"
#include "src/load/matrix_loader.h"
#include "src/plan/hub_form.h"

namespace sluice {

class HubRows {
 public:
  // All outlive this. `memory`: for rows that are made.
  HubRows(const ReadPlan& plan, MatrixLoader& loader, ThreadPool& pool, std::span<std::byte> memory)
      : plan_(plan), loader_(loader), pool_(pool), memory_(memory) {}

  // Gives `take` the rows of a file's tensor in order, as elements of `dtype`: so many at once, or
  // fewer at the end of a matrix. A vector is one row. Error(no_fit) where the memory has no room
  // for a row; others as of MatrixLoader.
  using Take = std::function<void(std::span<std::byte> bytes, int64_t first, int64_t rows)>;
  void each(const HubTensor& tensor, DType dtype, int64_t rows, const Take& take);

  // Rows of the file that `memory` bytes have room for.
  static int64_t rows_in(const HubTensor& tensor, DType dtype, int threads, uint64_t memory);
  // Bytes for so many rows.
  static uint64_t needed(const HubTensor& tensor, DType dtype, int threads, int64_t rows);

 private:
  struct Window;
  void each_row(const HubTensor& tensor, int64_t matrix, DType dtype, int64_t rows,
                const Take& take);
  void make_vector(const HubTensor& tensor, DType dtype, const Take& take);
  void fill(const HubTensor& tensor, std::vector<RowRun> runs, const Window& window);
  void load(const HubTensor& tensor, std::span<const RowRun> runs, const Window& window);
  void put(const HubTensor& tensor, const RowRun& run, const MatrixRows& loaded,
           const Window& window);
  void put_turned(const RowRun& run, const MatrixRows& loaded, const Window& window);

  const ReadPlan& plan_;
  MatrixLoader& loader_;
  ThreadPool& pool_;
  std::span<std::byte> memory_;
};

}  // namespace sluice
