// The rows of a step in the device's memory, where ops look them up: put together in pinned host
// memory, and copied at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/ops.h"

namespace sluice {

// All but `tables` for each row or chunk. A sequence is known by where its table begins.
struct DeviceChunks {
  const int32_t* tables = nullptr;     // of all groups' sequences, one after the other
  const int32_t* sequences = nullptr;  // [rows]
  const int32_t* positions = nullptr;  // [rows]
  const cuda::PrefillChunk* chunks = nullptr;
};

namespace cuda {

// Chunks of as many rows are prompts, with kernels of their own; fewer leave most of the tensor
// cores' rows empty.
inline constexpr int64_t kPrefillRows = 16;

// The length that attention of single rows is launched for, where the longest sequence has
// `longest` of at most `most` positions: a power of two of partitions, so that sequences that grow
// seldom change a launch. Blocks of partitions that no row has end at once.
int64_t launched_length(int64_t longest, int64_t most);

// Returns whether each row is of a sequence of its own, so that none attends to what is stored with
// it.
bool are_apart(std::span<const SequenceChunk> chunks);

// Uploads a step's rows. Lists that all rows need lie at places that depend on the number of rows
// only. The tables follow, whose lengths no op needs, and then lists that only prompts need.
class StepUpload {
 public:
  static uint64_t bytes(const WorkspaceNeeds& needs);  // of either memory
  // Copies are work of `stream`.
  StepUpload(Device& device, DeviceStream& stream, const WorkspaceNeeds& needs,
             const Workspace& memory);

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
  void put_rows(const KvRows& kv, int64_t rows, int32_t& table);
  void put_tables(std::span<const KvRows> kv, int64_t length);
  void put_prefill(std::span<const SequenceChunk> chunks, DeviceChunks& to, int32_t& table);
  std::optional<LaunchShape> launches(std::span<const SequenceChunk> chunks, int64_t rows) const;

  DeviceStream& stream_;
  std::unique_ptr<DeviceEvent> copied_;  // the last step's rows
  int64_t longest_;                      // sequence that was promised
  Workspace memory_;
  uint64_t used_ = 0;
  std::vector<DeviceChunks> chunks_;  // of each group
  std::vector<KvRows> kv_;
};

}  // namespace cuda
}  // namespace sluice
