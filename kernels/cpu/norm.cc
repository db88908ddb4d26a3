#include <algorithm>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {

int64_t norm_workspace(int64_t cols) { return cols * static_cast<int64_t>(sizeof(float)); }

// All but the rows.
cpu::NormJob CpuKernels::norm_job(const Weight& weight, const NormParams& params) const {
  auto* factors = reinterpret_cast<float*>(scratch(norm_workspace(weight.cols)));
  if (weight.is_meta()) {
    std::fill_n(factors, weight.cols, 1.0F);
  } else {
    decode_row(weight, 0, factors);
  }
  if (params.weight_offset != 0) {
    for (int64_t c = 0; c < weight.cols; ++c) factors[c] += params.weight_offset;
  }
  return {.centered = params.kind == NormKind::layer,
          .weight = factors,
          .bias = params.bias,
          .cols = weight.cols,
          .eps = params.eps,
          .squares_cols = params.squares_cols};
}

void CpuKernels::norm(Tensor x, const Weight& weight, const NormParams& params, Tensor y) const {
  check_norm(x, weight, params, y);
  const cpu::NormJob job = norm_job(weight, params);
  for_rows(x, [&](int64_t row) {
    cpu::NormJob of_row = job;
    if (params.squares != nullptr) of_row.squares = params.squares + row;
    for (int64_t c = 0; c < x.cols; c += job.cols)
      ops_.norm(of_row, x.row<float>(row) + c, y.row<float>(row) + c);
  });
}

void CpuKernels::sum_squares(Tensor x, Tensor sums) const {
  check_sum_squares(x, sums);
  for_rows(x, [&](int64_t row) {
    sums.row<float>(row)[0] = ops_.sum_squares(x.row<float>(row), x.cols);
  });
}

void CpuKernels::add_norm(Tensor residual, Tensor x, const Weight& weight, const NormParams& params,
                          Tensor y) const {
  check_norm(residual, weight, params, y);
  check_same_shape(residual, x);
  check(weight.cols == x.cols, "add_norm: of whole rows");
  const cpu::NormJob job = norm_job(weight, params);
  for_rows(x, [&](int64_t row) {
    ops_.add_norm(job, residual.row<float>(row), x.row<float>(row), y.row<float>(row));
  });
}

}  // namespace sluice
