#include "kernels/cuda/step_rows.h"

#include <algorithm>
#include <bit>

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

int64_t launched_length(int64_t longest, int64_t most) {
  const int64_t needed = ceil_div(longest, kPartition);
  const auto wider = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(needed)));
  return std::max(needed, std::min(wider, ceil_div(most, kPartition))) * kPartition;
}

bool are_apart(std::span<const SequenceChunk> chunks) {
  return std::ranges::all_of(chunks, [](const SequenceChunk& c) { return c.rows == 1; });
}

uint64_t StepUpload::bytes(const WorkspaceNeeds& n) {
  int64_t table = ceil_div(n.longest, n.block_size) + 1;
  uint64_t group = array_bytes(n.max_rows, sizeof(int64_t)) +
                   2 * array_bytes(n.max_rows, sizeof(int32_t)) +
                   array_bytes(n.sequences * table, sizeof(int32_t)) +
                   array_bytes(n.sequences, sizeof(PrefillChunk));
  return 2 * array_bytes(n.max_rows, sizeof(int32_t)) +
         2 * array_bytes(n.max_rows * n.rope_cols, sizeof(float)) +
         array_bytes(n.alibi ? n.heads : 0, sizeof(float)) +
         static_cast<uint64_t>(n.groups) * group;
}

StepUpload::StepUpload(Device& device, DeviceStream& stream, const WorkspaceNeeds& needs,
                       const Workspace& memory)
    : stream_(stream), copied_(device.event()), longest_(needs.longest), memory_(memory) {}

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

// Slots, and where each row's table and position are; `table`: where the next sequence's begins.
void StepUpload::put_rows(const KvRows& kv, int64_t rows, int32_t& table) {
  const int64_t* slots = put(kv.slots);
  Array<int32_t> sequences = place<int32_t>(rows), positions = place<int32_t>(rows);
  for (const SequenceChunk& c : kv.chunks) {
    for (int64_t r = 0; r < c.rows; ++r) {
      sequences.host[c.first_row + r] = table;
      positions.host[c.first_row + r] = narrow(c.first_position + r);
    }
    table += narrow(std::ssize(c.block_table));
  }
  DeviceChunks& chunks = chunks_.emplace_back();
  chunks.sequences = sequences.device;
  chunks.positions = positions.device;
  kv_.push_back({kv.chunks, {slots, kv.slots.size()}, nullptr});
}

void StepUpload::put_tables(std::span<const KvRows> kv, int64_t length) {
  Array<int32_t> tables = place<int32_t>(length);
  int32_t* to = tables.host;
  for (const KvRows& group : kv) {
    for (const SequenceChunk& c : group.chunks) to = std::ranges::copy(c.block_table, to).out;
  }
  for (DeviceChunks& chunks : chunks_) chunks.tables = tables.device;
}

void StepUpload::put_prefill(std::span<const SequenceChunk> chunks, DeviceChunks& to,
                             int32_t& table) {
  Array<PrefillChunk> prefill = place<PrefillChunk>(std::ssize(chunks));
  for (size_t i = 0; i < chunks.size(); ++i) {
    const SequenceChunk& c = chunks[i];
    prefill.host[i] = {narrow(c.first_row), narrow(c.rows), narrow(c.first_position), table};
    table += narrow(std::ssize(c.block_table));
  }
  to.chunks = prefill.device;
}

std::optional<LaunchShape> StepUpload::launches(std::span<const SequenceChunk> chunks,
                                                int64_t rows) const {
  int64_t longest = 0;
  for (const SequenceChunk& c : chunks) {
    if (c.rows >= kPrefillRows) return std::nullopt;
    longest = std::max(longest, c.first_position + c.rows);
  }
  return LaunchShape{rows, launched_length(longest, longest_), are_apart(chunks)};
}

StepRows StepUpload::upload(const StepRows& rows) {
  copied_->synchronize();  // before its memory is written to again
  used_ = 0;
  chunks_.clear();
  kv_.clear();
  const int64_t count = std::ssize(rows.ids);
  StepRows on_device;
  on_device.ids = {put(rows.ids), rows.ids.size()};
  on_device.host_ids = rows.host_ids;
  on_device.positions = {put(rows.positions), rows.positions.size()};
  on_device.cos = put_matrix(rows.cos);
  on_device.sin = put_matrix(rows.sin);
  on_device.alibi_slopes = {put(rows.alibi_slopes), rows.alibi_slopes.size()};
  int32_t table = 0;
  for (const KvRows& kv : rows.kv) put_rows(kv, count, table);
  put_tables(rows.kv, table);
  table = 0;
  for (size_t g = 0; g < rows.kv.size(); ++g) {
    put_prefill(rows.kv[g].chunks, chunks_[g], table);
    kv_[g].on_device = &chunks_[g];
  }
  on_device.kv = kv_;
  on_device.host_positions = rows.host_positions;
  if (!rows.kv.empty()) on_device.launches = launches(rows.kv[0].chunks, count);
  stream_.copy(memory_.device.data(), memory_.host.data(), used_);
  stream_.record(*copied_);
  return on_device;
}

}  // namespace sluice::cuda
