#include "src/nn/host_side.h"

#include "src/base/check.h"
#include "src/nn/weight_stream.h"

namespace sluice {

HostSide::HostSide(const Kernels& kernels, Device& device, std::span<float> inputs,
                   std::span<float> outputs)
    : kernels_(kernels), inputs_(inputs), outputs_(outputs), arrived_(device.event()) {}

void HostSide::await(DeviceStream& stream) const {
  stream.record(*arrived_);
  arrived_->synchronize();
}

void HostSide::linear(Tensor x, const Weight& w, const float* bias, Tensor y,
                      DeviceStream& stream) const {
  check(x.rows * x.cols <= std::ssize(inputs_) && y.rows * y.cols <= std::ssize(outputs_),
        "a product that the plan has room for");
  const auto matrix = [](std::span<float> memory, Tensor like) {
    return Tensor{reinterpret_cast<std::byte*>(memory.data()), DType::f32, like.rows, like.cols,
                  like.cols};
  };
  const Tensor inputs = matrix(inputs_, x), outputs = matrix(outputs_, y);
  copy_rows(inputs, x, stream);
  await(stream);
  kernels_.linear(inputs, w, bias, outputs);
  copy_rows(y, outputs, stream);
}

bool is_multiplied_by_host(const Param& w, int64_t rows) {
  return w.stream != nullptr && rows <= w.stream->host_rows(w);
}

void copy_rows(Tensor to, Tensor from, DeviceStream& stream) {
  check(to.rows == from.rows && to.cols == from.cols, "a copy of the same shape");
  const bool whole = to.stride == to.cols && from.stride == from.cols;
  const int64_t copies = whole ? 1 : to.rows;
  const auto bytes = static_cast<uint64_t>(to.rows * to.cols) * sizeof(float);
  for (int64_t i = 0; i < copies; ++i) {
    const auto size = bytes / static_cast<uint64_t>(copies);
    stream.copy(to.rows_from(i, 1).data, from.rows_from(i, 1).data, size);
  }
}

}  // namespace sluice
