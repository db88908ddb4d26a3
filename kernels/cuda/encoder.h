// Weights from host memory into the device's, encoded there. Each caller has a lane: a stream, and
// memory of the device where its source goes first. So one caller's copy runs beside another's
// kernel, as many at once as there are lanes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace sluice::cuda {

class CudaEncoder final : public Encoder {
 public:
  static WorkspaceBytes bytes(uint64_t slot_bytes);
  CudaEncoder(Device& device, uint64_t slot_bytes, const Workspace& memory);
  ~CudaEncoder() override;

  EncodeStats encode(const EncodeArgs& args) const override;
  float absolute_max(const std::byte* source, DType stored, int64_t source_stride, int64_t rows,
                     int64_t cols) const override;
  void order_columns(const Weight& to, int64_t first_row, int64_t rows,
                     const int32_t* order) const override;

 private:
  EncodeStats encode_quantized(const EncodeArgs& args) const;
  // Results that are copied back, and memory that an encoding needs beside its source.
  struct Result {
    EncodeStats stats;
    float amax = 0;
  };
  struct Lane {
    std::unique_ptr<DeviceStream> stream;
    std::span<std::byte> source;  // of the device
    Result* device = nullptr;
    Result* host = nullptr;
  };
  class Use;  // of a lane, by one caller

  mutable std::mutex mutex_;
  mutable std::condition_variable freed_;
  mutable std::vector<Lane*> free_;  // guarded by mutex_
  std::vector<Lane> lanes_;
};

}  // namespace sluice::cuda
