#include "src/load/gptq_copies.h"

#include <algorithm>

#include "quant/gptq.h"
#include "quant/grouped_rows.h"
#include "quant/groups.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/load/column_reader.h"

namespace sluice {
namespace {

// Columns that are whole words of zeros, whatever their bits.
constexpr int64_t kOutputs = 32;

// Some outputs of the three tensors: where their columns are read to, and what becomes of them.
struct Window {
  int64_t outputs = 0;
  std::span<std::byte> columns, weight, rows;
};

// Returns a window of as many outputs as `memory` has room for.
Window window_in(std::span<std::byte> memory, const GptqSource& source, int64_t inputs) {
  const WeightFormat& format = source.format;
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
  while (outputs < source.outputs && total(outputs + kOutputs) <= memory.size())
    outputs += kOutputs;
  if (outputs == 0)
    fail(ErrorKind::no_fit, "{}: {} inputs are too many to be turned over in {}",
         source.codes->name, inputs, format_size(memory.size()));
  const auto parts = of(outputs);
  return {.outputs = outputs,
          .columns = memory.first(parts[0]),
          .weight = memory.subspan(parts[0], parts[1]),
          .rows = memory.subspan(parts[0] + parts[1], parts[2])};
}

// A plane of the matrix, of which each output has `bits` bits in a row.
struct StoredPlane {
  StoredPlane(const io::CheckpointIndex& index, const GptqSource& source, Plane of)
      : plane(of),
        stored(of == Plane::codes   ? *source.codes
               : of == Plane::zeros ? *source.zeros
                                    : *source.scales),
        bits(of == Plane::codes   ? 32
             : of == Plane::zeros ? source.format.bits
                                  : 16),
        reader(index, stored, 0, stored.shape[0],
               stored.bytes / static_cast<uint64_t>(stored.shape[0])) {}
  Plane plane;
  const io::StoredTensor& stored;
  int64_t bits;
  ColumnReader reader;
};

// Outputs from `first` on, as many as `to` has rows.
void encode(const StoredPlane& from, const GptqSource& source, int64_t first, const Weight& to,
            std::span<std::byte> memory) {
  const int64_t row_bytes = to.rows * from.bits / 8;
  from.reader.read(static_cast<uint64_t>(first * from.bits / 8), static_cast<uint64_t>(row_bytes),
                   memory.data());
  EncodeArgs args{
      .source = memory.data(),
      .stored = from.plane == Plane::scales ? from.stored.dtype : gptq_type(to.format.bits),
      .source_stride = row_bytes,
      .rows = from.stored.shape[0],
      .to = to,
      .plane = from.plane,
      .outputs = to.rows};
  if (to.format.ordered) {
    args.order = source.order.data();
    args.places = source.places.data();
  }
  encode_gptq(args);
}

}  // namespace

void copy_gptq_by_rows(const io::CheckpointIndex& index, const GptqSource& source, SummedOutput& to,
                       uint64_t offset, std::span<std::byte> memory, const std::stop_token& stop) {
  const int64_t inputs = source.codes->shape[0] * 32 / source.format.bits;
  const int64_t outputs = source.outputs;
  const Window window = window_in(memory, source, inputs);
  WeightFormat format = source.format;
  format.layout = WeightLayout::rows;
  const int64_t row_bytes = grouped_row_layout(format, inputs).bytes;
  const StoredPlane planes[] = {
      {index, source, Plane::codes}, {index, source, Plane::zeros}, {index, source, Plane::scales}};
  for (int64_t first = 0; first < outputs; first += window.outputs) {
    if (stop.stop_requested()) fail(ErrorKind::runtime, "interrupted while loading the model");
    const int64_t count = std::min(window.outputs, outputs - first);
    const Weight weight = weight_in(format, count, inputs, window.weight.data());
    for (const StoredPlane& plane : planes) encode(plane, source, first, weight, window.columns);
    for (int64_t r = 0; r < count; ++r)
      take_grouped_row(weight, r, window.rows.data() + r * row_bytes);
    to.write(offset + static_cast<uint64_t>(first * row_bytes),
             window.rows.first(static_cast<size_t>(count * row_bytes)));
  }
}

}  // namespace sluice
