// The ops that are one pass over rows.
#include <algorithm>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"

namespace sluice {

int64_t norm_workspace(int64_t cols) { return cols * static_cast<int64_t>(sizeof(float)); }

void CpuKernels::embed(const Weight& table, std::span<const int32_t> ids, Tensor out) const {
  check_embed(table, ids, out);
  for_rows(out, [&](int64_t row) {
    decode_row(table, ids[static_cast<size_t>(row)], out.row<float>(row));
  });
}

void CpuKernels::rms_norm(Tensor x, const Weight& weight, float eps, Tensor y) const {
  check_rms_norm(x, weight, y);
  auto* factors = reinterpret_cast<float*>(scratch(norm_workspace(x.cols)));
  decode_row(weight, 0, factors);
  for_rows(x, [&](int64_t row) {
    ops_.rms_norm(x.row<float>(row), factors, x.cols, eps, y.row<float>(row));
  });
}

void CpuKernels::add_rms_norm(Tensor residual, Tensor x, const Weight& weight, float eps,
                              Tensor y) const {
  check_rms_norm(residual, weight, y);
  check_same_shape(residual, x);
  auto* factors = reinterpret_cast<float*>(scratch(norm_workspace(x.cols)));
  decode_row(weight, 0, factors);
  for_rows(x, [&](int64_t row) {
    ops_.add_rms_norm(residual.row<float>(row), x.row<float>(row), factors, x.cols, eps,
                      y.row<float>(row));
  });
}

void CpuKernels::add(Tensor x, Tensor y) const {
  check_same_shape(x, y);
  for_rows(x, [&](int64_t row) { ops_.add(x.row<float>(row), y.row<float>(row), x.cols); });
}

void CpuKernels::gated_activation(Activation activation, Tensor gate, Tensor up, Tensor out) const {
  check_same_shape(gate, up);
  check_same_shape(gate, out);
  for_rows(gate, [&](int64_t row) {
    ops_.gated_activation(activation, gate.row<float>(row), up.row<float>(row), gate.cols,
                          out.row<float>(row));
  });
}

void CpuKernels::rope(Tensor x, int64_t head_dim, Tensor cos, Tensor sin) const {
  check_rope(x, head_dim, cos, sin);
  for_rows(x, [&](int64_t row) {
    for (int64_t head = 0; head < x.cols; head += head_dim) {
      ops_.rope(x.row<float>(row) + head, cos.row<float>(row), sin.row<float>(row), cos.cols);
    }
  });
}

}  // namespace sluice
