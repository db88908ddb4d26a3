// A matrix of a layer's experts, as kernels address it.
#pragma once

#include "kernels/cuda/dispatch.h"
#include "kernels/cuda/experts.h"
#include "kernels/cuda/panels.cuh"
#include "kernels/cuda/simt.h"

namespace sluice::cuda {

struct ExpertPlanes {
  const std::byte* codes;
  int64_t step;  // bytes
  const float* scales;
  const float* bias;
  int64_t bias_step;  // bytes
  int rows, cols;
  int64_t panel_bytes;  // of codes in panels
  int cells;            // of a panel

  __device__ const std::byte* codes_of(int64_t expert) const { return codes + expert * step; }
  __device__ const float* scales_of(int64_t expert) const { return moved(scales, expert * step); }
  // Null: it has none.
  __device__ const float* bias_of(int64_t expert) const {
    return bias == nullptr ? nullptr : moved(bias, expert * bias_step);
  }
  __device__ static const float* moved(const float* at, int64_t bytes) {
    return reinterpret_cast<const float*>(reinterpret_cast<const std::byte*>(at) + bytes);
  }
};

inline ExpertPlanes planes_of(const ExpertMatrix& m) {
  return {m.first.data,
          m.step,
          m.first.scales,
          m.bias,
          m.bias_step,
          static_cast<int>(m.first.rows),
          static_cast<int>(m.first.cols),
          panel_step(m.first),
          static_cast<int>(panel_step(m.first) / kCellBytes)};
}

// The outputs of rows, whose experts' sums are weighted and added.
struct ExpertOutputs {
  const float* weights;  // of pairs
  const float* shared;   // or null
  int64_t shared_stride;
  const float* shared_weights;  // or null
  int64_t shared_weights_stride;
  float* y;
  int64_t y_stride;

  // Adds what the shared expert has.
  __device__ void store(int64_t token, int row, float sum) const {
    if (shared != nullptr) {
      float more = shared[token * shared_stride + row];
      if (shared_weights != nullptr) more *= shared_weights[token * shared_weights_stride];
      sum += more;
    }
    y[token * y_stride + row] = sum;
  }
};

inline ExpertOutputs expert_outputs(const float* weights, const SharedExpert& shared,
                                    const Tensor& y) {
  ExpertOutputs out{};
  out.weights = weights;
  if (shared.out.data != nullptr) {
    out.shared = shared.out.row<float>(0);
    out.shared_stride = shared.out.stride;
  }
  if (shared.weights.data != nullptr) {
    out.shared_weights = shared.weights.row<float>(0);
    out.shared_weights_stride = shared.weights.stride;
  }
  out.y = y.row<float>(0);
  out.y_stride = y.stride;
  return out;
}

// body(Constant<codes>, Constant<scales>) for a format that experts_fit().
template <class Body>
void with_expert_format(const WeightFormat& format, Body&& body) {
  if (format.dtype == DType::bf16) {
    body(Constant<DType::bf16>{}, Constant<ScaleKind::none>{});
  } else if (format.dtype == DType::i8) {
    body(Constant<DType::i8>{}, Constant<ScaleKind::per_row>{});
  } else if (format.scales == ScaleKind::per_row) {
    body(Constant<DType::f8_e4m3>{}, Constant<ScaleKind::per_row>{});
  } else {
    check(format.scales == ScaleKind::per_block, "f8_e4m3 codes have scales");
    body(Constant<DType::f8_e4m3>{}, Constant<ScaleKind::per_block>{});
  }
}

}  // namespace sluice::cuda
