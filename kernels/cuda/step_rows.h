// What ops look up for the rows of a step, in the device's memory: put together in pinned host
// memory, and brought there by one copy.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/ops.h"

namespace sluice {

// All but `tables` for each row or chunk. A sequence is known by where its table begins.
struct DeviceChunks {
  const int32_t* tables = nullptr;     // of the sequences, one after the other
  const int32_t* sequences = nullptr;  // [rows]
  const int32_t* positions = nullptr;  // [rows]
  const cuda::PrefillChunk* chunks = nullptr;
};

namespace cuda {

class StepUpload {
 public:
  static uint64_t bytes(const WorkspaceNeeds& needs);  // of either memory
  // Copies are work of `stream`.
  StepUpload(Device& device, DeviceStream& stream, const Workspace& memory);

  // Error(no_fit) for more than was planned. Valid until the next call.
  StepRows upload(const StepRows& rows);

 private:
  // The same place in both memories.
  template <class T>
  struct Array {
    T* host;
    T* device;
  };
  template <class T>
  Array<T> place(int64_t count);
  template <class T>
  const T* put(std::span<const T> values);
  Tensor put_matrix(const Tensor& from);
  DeviceChunks put_chunks(std::span<const SequenceChunk> chunks, int64_t rows);

  DeviceStream& stream_;
  std::unique_ptr<DeviceEvent> copied_;  // the last step's rows
  Workspace memory_;
  uint64_t used_ = 0;
  std::vector<DeviceChunks> chunks_;  // of each group
  std::vector<KvRows> kv_;
};

}  // namespace cuda
}  // namespace sluice
