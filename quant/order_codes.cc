#include "quant/order_codes.h"

#include <algorithm>
#include <utility>

#include "quant/groups.h"
#include "src/base/check.h"

namespace sluice {

void order_codes(const OrderCodesJob& job) {
  const int64_t words = job.cols / kRunCols * job.bits;
  uint32_t from[kMostOrderedWords];
  for (int64_t o = 0; o < job.outputs; ++o) {
    uint32_t* to = job.words + o;
    for (int64_t w = 0; w < words; ++w) from[w] = std::exchange(to[w * job.outputs], 0);
    for (int64_t c = 0; c < job.cols; ++c) {
      const int64_t input = job.order[c];
      const int code = run_code(from + input / kRunCols * job.bits, 1, job.bits,
                                static_cast<int>(input % kRunCols));
      put_run_code(to + c / kRunCols * job.bits * job.outputs, job.outputs, job.bits,
                   static_cast<int>(c % kRunCols), static_cast<uint32_t>(code));
    }
  }
}

void order_columns(const Weight& to, int64_t first_row, int64_t rows, const int32_t* order,
                   OrderCodes* each) {
  const bool packed = to.format.layout == WeightLayout::packed;
  const int64_t step = packed ? kPanelRows : 1, words = to.cols / kRunCols * to.format.bits;
  check(to.format.ordered && to.cols % kRunCols == 0 && words <= kMostOrderedWords,
        "whole runs of columns that have an order");
  check(first_row % step == 0 && first_row + rows <= to.rows, "rows within the weight");
  OrderCodesJob job{.outputs = step, .cols = to.cols, .bits = to.format.bits, .order = order};
  for (int64_t row = first_row; row < first_row + rows; row += step) {
    job.words = reinterpret_cast<uint32_t*>(to.data) + row * words;
    each(job);
  }
  std::copy_n(order, to.cols, to.order);
}

}  // namespace sluice
