#include "src/load/grouped_copies.h"

#include <algorithm>

#include "quant/grouped_columns.h"
#include "quant/grouped_rows.h"
#include "quant/groups.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/load/column_reader.h"

namespace sluice {
namespace {

// Columns that are whole words of zeros, whatever their bits.
constexpr int64_t kOutputs = 32;

// Some outputs of the planes: where their columns are read to, and what becomes of them.
struct Window {
  int64_t outputs = 0;
  std::span<std::byte> columns, weight, rows;
};

// Bits that each output has in a row of a plane.
int64_t bits_of(const StoredPlane& plane, const StoredMatrix& matrix) {
  const auto rows = static_cast<uint64_t>(plane.tensor->shape[0]);
  return static_cast<int64_t>(plane.tensor->bytes / rows * 8) / matrix.outputs;
}

// Returns a window of as many outputs as `memory` has room for.
Window window_in(std::span<std::byte> memory, const StoredMatrix& matrix, int64_t inputs) {
  const WeightFormat& format = *matrix.kept;
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
  int64_t outputs = 0;
  while (outputs < matrix.outputs && total(outputs + kOutputs) <= memory.size())
    outputs += kOutputs;
  if (outputs == 0)
    fail(ErrorKind::no_fit, "{}: {} inputs are too many to be turned over in {}",
         matrix.planes.front().tensor->name, inputs, format_size(memory.size()));
  const auto parts = of(outputs);
  return {.outputs = outputs,
          .columns = memory.first(parts[0]),
          .weight = memory.subspan(parts[0], parts[1]),
          .rows = memory.subspan(parts[0] + parts[1], parts[2])};
}

// Outputs from `first` on, as many as `to` has rows.
void encode(const io::CheckpointIndex& index, const StoredPlane& plane, const StoredMatrix& matrix,
            int64_t first, const Weight& to, std::span<std::byte> memory) {
  const io::StoredTensor& stored = *plane.tensor;
  const int64_t rows = stored.shape[0], bits = bits_of(plane, matrix);
  const ColumnReader reader(index, stored, 0, rows, stored.bytes / static_cast<uint64_t>(rows));
  const int64_t row_bytes = to.rows * bits / 8;
  reader.read(static_cast<uint64_t>(first * bits / 8), static_cast<uint64_t>(row_bytes),
              memory.data());
  EncodeArgs args{.source = memory.data(),
                  .stored = plane.plane == Plane::scales ? stored.dtype : DType::u32,
                  .source_stride = row_bytes,
                  .rows = rows,
                  .to = to,
                  .plane = plane.plane,
                  .words = plane.words,
                  .outputs = to.rows};
  if (to.format.ordered) {
    args.order = matrix.order.data();
    args.places = matrix.places.data();
  }
  encode_grouped_columns(args);
}

}  // namespace

void copy_by_rows(const io::CheckpointIndex& index, const StoredMatrix& matrix, int64_t inputs,
                  SummedOutput& to, uint64_t offset, std::span<std::byte> memory,
                  const std::stop_token& stop) {
  const Window window = window_in(memory, matrix, inputs);
  WeightFormat format = *matrix.kept;
  format.layout = WeightLayout::rows;
  const int64_t row_bytes = grouped_row_layout(format, inputs).bytes;
  for (int64_t first = 0; first < matrix.outputs; first += window.outputs) {
    if (stop.stop_requested()) fail(ErrorKind::runtime, "interrupted while loading the model");
    const int64_t count = std::min(window.outputs, matrix.outputs - first);
    const Weight weight = weight_in(format, count, inputs, window.weight.data());
    for (const StoredPlane& plane : matrix.planes)
      encode(index, plane, matrix, first, weight, window.columns);
    for (int64_t r = 0; r < count; ++r)
      take_grouped_row(weight, r, window.rows.data() + r * row_bytes);
    to.write(offset + static_cast<uint64_t>(first * row_bytes),
             window.rows.first(static_cast<size_t>(count * row_bytes)));
  }
}

}  // namespace sluice
