#include "src/load/gptq_copies.h"

#include <algorithm>

#include "quant/gptq.h"
#include "quant/grouped_rows.h"
#include "quant/groups.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {
namespace {

// Columns that are whole words of zeros, whatever their bits.
constexpr int64_t kOutputs = 32;

// Some outputs of the three tensors: where their columns are read to, and what becomes of them.
struct Window {
  int64_t outputs = 0;
  std::span<std::byte> columns, weight, rows;
};

// As many outputs as `memory` has room for.
Window window_in(std::span<std::byte> memory, const TensorPlan& codes, int64_t inputs) {
  const WeightFormat& format = codes.gptq->format;
  const auto of = [&](int64_t outputs) {
    const auto columns = static_cast<uint64_t>(inputs * format.bits / 8 * outputs);
    return std::array{round_up(columns, kCellBytes),
                      round_up(storage_bytes(format, outputs, inputs), kCellBytes),
                      static_cast<uint64_t>(grouped_row_layout(format, inputs).bytes * outputs)};
  };
  const auto total = [&](int64_t outputs) {
    const auto parts = of(outputs);
    return parts[0] + parts[1] + parts[2];
  };
  int64_t outputs = 0, all = codes.stored->shape[codes.stored->shape.size() - 1];
  while (outputs < all && total(outputs + kOutputs) <= memory.size()) outputs += kOutputs;
  if (outputs == 0)
    fail(ErrorKind::no_fit, "{}: {} inputs are too many to be turned over in {}",
         codes.stored->name, inputs, format_size(memory.size()));
  const auto parts = of(outputs);
  return {.outputs = outputs,
          .columns = memory.first(parts[0]),
          .weight = memory.subspan(parts[0], parts[1]),
          .rows = memory.subspan(parts[0] + parts[1], parts[2])};
}

// One matrix on its way.
class Copy {
 public:
  Copy(const io::CheckpointIndex& index, const TensorPlan& codes, int64_t inputs)
      : index_(index), codes_(codes), inputs_(inputs), format_(codes.gptq->format) {
    format_.layout = WeightLayout::rows;
  }

  // Outputs [first, first + count), through the window.
  std::span<const std::byte> rows(int64_t first, int64_t count, const Window& window) const {
    const Weight weight = weight_in(format_, count, inputs_, window.weight.data());
    encode(*codes_.stored, Plane::codes, first, weight, window.columns);
    encode(*codes_.gptq->zeros, Plane::zeros, first, weight, window.columns);
    encode(*codes_.gptq->scales, Plane::scales, first, weight, window.columns);
    const int64_t row_bytes = grouped_row_layout(format_, inputs_).bytes;
    for (int64_t r = 0; r < count; ++r)
      take_grouped_row(weight, r, window.rows.data() + r * row_bytes);
    return window.rows.first(static_cast<size_t>(count * row_bytes));
  }

 private:
  void encode(const io::StoredTensor& stored, Plane plane, int64_t first, const Weight& to,
              std::span<std::byte> memory) const {
    const bool scales = plane == Plane::scales;
    const int64_t bits = scales ? 16 : plane == Plane::zeros ? format_.bits : 32;
    const auto row_bytes = static_cast<size_t>(to.rows * bits / 8);
    const auto stored_row = stored.bytes / static_cast<uint64_t>(stored.shape[0]);
    const io::CheckpointFile& file = index_.files()[stored.file];
    const io::Fd fd = io::open_regular(file.path);
    for (int64_t r = 0; r < stored.shape[0]; ++r) {
      const auto at =
          static_cast<uint64_t>(r) * stored_row + static_cast<uint64_t>(first * bits / 8);
      io::read_exactly(
          fd, file.path, stored.offset + at,
          {reinterpret_cast<char*>(memory.data()) + static_cast<size_t>(r) * row_bytes, row_bytes});
    }
    EncodeArgs args{.source = memory.data(),
                    .stored = scales ? stored.dtype : gptq_type(format_.bits),
                    .source_stride = static_cast<int64_t>(row_bytes),
                    .rows = stored.shape[0],
                    .to = to,
                    .plane = plane,
                    .outputs = to.rows};
    if (format_.ordered) {
      args.order = codes_.gptq->order.data();
      args.places = codes_.gptq->places.data();
    }
    encode_gptq(args);
  }

  const io::CheckpointIndex& index_;
  const TensorPlan& codes_;
  int64_t inputs_;
  WeightFormat format_;
};

}  // namespace

void copy_gptq_by_rows(const io::CheckpointIndex& index, const TensorPlan& codes,
                       const io::NewFile& to, uint64_t offset, std::span<std::byte> memory,
                       const std::stop_token& stop) {
  const Shape& shape = codes.stored->shape;
  const int64_t inputs = shape[0] * 32 / codes.gptq->format.bits, outputs = shape[1];
  const Window window = window_in(memory, codes, inputs);
  const Copy copy(index, codes, inputs);
  for (int64_t first = 0; first < outputs; first += window.outputs) {
    if (stop.stop_requested()) fail(ErrorKind::runtime, "interrupted while loading the model");
    const auto rows = copy.rows(first, std::min(window.outputs, outputs - first), window);
    to.write(offset, rows);
    offset += rows.size();
  }
}

}  // namespace sluice
