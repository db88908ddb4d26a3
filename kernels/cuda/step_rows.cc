#include "kernels/cuda/step_rows.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::cuda {
namespace {

constexpr uint64_t kAlignment = 16;

uint64_t array_bytes(int64_t count, uint64_t each) {
  return round_up(static_cast<uint64_t>(count) * each, kAlignment);
}

int32_t narrow(int64_t value) { return static_cast<int32_t>(value); }

}  // namespace

uint64_t StepUpload::bytes(const WorkspaceNeeds& n) {
  int64_t table = ceil_div(n.longest, n.block_size) + 1;
  uint64_t group = array_bytes(n.max_rows, sizeof(int64_t)) +
                   2 * array_bytes(n.max_rows, sizeof(int32_t)) +
                   array_bytes(n.sequences, sizeof(PrefillChunk)) +
                   array_bytes(n.sequences * table, sizeof(int32_t));
  return array_bytes(n.max_rows, sizeof(int32_t)) +
         2 * array_bytes(n.max_rows * n.rope_cols, sizeof(float)) +
         static_cast<uint64_t>(n.groups) * group;
}

StepUpload::StepUpload(Device& device, DeviceStream& stream, const Workspace& memory)
    : stream_(stream), copied_(device.event()), memory_(memory) {}

template <class T>
StepUpload::Array<T> StepUpload::place(int64_t count) {
  uint64_t at = used_;
  used_ += array_bytes(count, sizeof(T));
  if (used_ > std::min(memory_.host.size(), memory_.device.size())) {
    fail(ErrorKind::no_fit,
         "a step has more sequences, or longer ones, than --max-num-seqs and "
         "--max-model-len have promised");
  }
  return {reinterpret_cast<T*>(memory_.host.data() + at),
          reinterpret_cast<T*>(memory_.device.data() + at)};
}

template <class T>
const T* StepUpload::put(std::span<const T> values) {
  Array<T> to = place<T>(std::ssize(values));
  std::ranges::copy(values, to.host);
  return to.device;
}

Tensor StepUpload::put_matrix(const Tensor& from) {
  Array<float> to = place<float>(from.rows * from.cols);
  for (int64_t r = 0; r < from.rows; ++r)
    std::copy_n(from.row<float>(r), from.cols, to.host + r * from.cols);
  return {reinterpret_cast<std::byte*>(to.device), DType::f32, from.rows, from.cols, from.cols};
}

DeviceChunks StepUpload::put_chunks(std::span<const SequenceChunk> chunks, int64_t rows) {
  Array<int32_t> sequences = place<int32_t>(rows), positions = place<int32_t>(rows);
  Array<PrefillChunk> prefill = place<PrefillChunk>(std::ssize(chunks));
  int64_t table_length = 0;
  for (const SequenceChunk& c : chunks) table_length += std::ssize(c.block_table);
  Array<int32_t> tables = place<int32_t>(table_length);
  int32_t sequence = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const SequenceChunk& c = chunks[i];
    for (int64_t r = 0; r < c.rows; ++r) {
      sequences.host[c.first_row + r] = sequence;
      positions.host[c.first_row + r] = narrow(c.first_position + r);
    }
    prefill.host[i] = {narrow(c.first_row), narrow(c.rows), narrow(c.first_position), sequence};
    std::ranges::copy(c.block_table, tables.host + sequence);
    sequence += narrow(std::ssize(c.block_table));
  }
  return {tables.device, sequences.device, positions.device, prefill.device};
}

StepRows StepUpload::upload(const StepRows& rows) {
  copied_->synchronize();  // before its memory is written to again
  used_ = 0;
  const int64_t count = std::ssize(rows.ids);
  StepRows on_device;
  on_device.ids = {put(rows.ids), rows.ids.size()};
  on_device.host_ids = rows.host_ids;
  on_device.cos = put_matrix(rows.cos);
  on_device.sin = put_matrix(rows.sin);
  chunks_.resize(rows.kv.size());
  kv_.clear();
  for (size_t g = 0; g < rows.kv.size(); ++g) {
    const KvRows& kv = rows.kv[g];
    chunks_[g] = put_chunks(kv.chunks, count);
    kv_.push_back({kv.chunks, {put(kv.slots), kv.slots.size()}, &chunks_[g]});
  }
  on_device.kv = kv_;
  stream_.copy(memory_.device.data(), memory_.host.data(), used_);
  stream_.record(*copied_);
  return on_device;
}

}  // namespace sluice::cuda
