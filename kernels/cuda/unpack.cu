// Packed weights of formats that a GPU has in plain rows, as a CPU has them, in the row layout
// (quant/format.h, quant/blocks.h). A panel is runs of units: of each of 16 rows one unit, then of
// each the next. So all that changes is where a unit is. A weight in host memory is stored once,
// and crosses the link as the CPU multiplies it.
#include <algorithm>

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/unpack.h"
#include "quant/blocks.h"
#include "quant/groups.h"
#include "quant/matrix_layout.h"
#include "src/base/check.h"

namespace sluice::cuda {
namespace {

struct UnpackArgs {
  const std::byte* from;
  std::byte* to;
  int64_t units;      // of a row
  int64_t row_bytes;  // of a row in `to`: the last unit may be shorter
};

// The unit of a row that begins at byte `at` of the row, and at byte `packed` of the panel.
template <class Unit>
__device__ void move_unit(const UnpackArgs& a, const std::byte* panel, int64_t packed, int64_t at) {
  const Unit unit = *reinterpret_cast<const Unit*>(panel + packed);
  const int64_t to = blockIdx.x * a.row_bytes + at;
  if (at + int64_t{sizeof(Unit)} <= a.row_bytes && to % sizeof(Unit) == 0) {
    *reinterpret_cast<Unit*>(a.to + to) = unit;
    return;
  }
  for (int64_t i = 0; i < std::min(int64_t{sizeof(Unit)}, a.row_bytes - at); ++i)
    a.to[to + i] = static_cast<std::byte>(unit >> (8 * i));
}

// Units [units][16 rows].
template <class Unit>
__global__ void __launch_bounds__(kElementwiseThreads) unpack_kernel(UnpackArgs a) {
  constexpr int64_t kUnit = sizeof(Unit);
  const int64_t u = elementwise_column(1), row = blockIdx.x % kPanelRows;
  if (u >= a.units) return;
  const std::byte* panel = a.from + blockIdx.x / kPanelRows * a.units * kPanelRows * kUnit;
  move_unit<Unit>(a, panel, (u * kPanelRows + row) * kUnit, u * kUnit);
}

struct BlockPlaces {
  int bytes, words, rest;  // of a block: bytes behind its words, or before them
  int begin;               // of its words, in bytes
  int first_codes, codes;  // words whose middle bytes are exchanged
};

// Blocks of GGUF: words [words][16 rows], then the rest of each row. A thread moves a byte.
__global__ void __launch_bounds__(kElementwiseThreads)
    unpack_blocks_kernel(UnpackArgs a, BlockPlaces p) {
  const int64_t at = elementwise_column(1), row = blockIdx.x % kPanelRows;
  if (at >= a.row_bytes) return;
  const std::byte* from = a.from + blockIdx.x / kPanelRows * a.row_bytes * kPanelRows +
                          at / p.bytes * p.bytes * kPanelRows;
  const int of_block = static_cast<int>(at % p.bytes), of_words = of_block - p.begin;
  int64_t packed = 0;
  if (of_words >= 0 && of_words < p.words * 4) {
    const int word = of_words / 4, byte = of_words % 4;
    const bool is_codes = word >= p.first_codes && word < p.first_codes + p.codes;
    const bool is_middle = byte == 1 || byte == 2;
    packed = (word * kPanelRows + row) * 4 + (is_codes && is_middle ? 3 - byte : byte);
  } else {
    const int of_rest = p.begin > 0 ? of_block : of_block - p.words * 4;
    packed = p.words * kPanelRows * 4 + row * p.rest + of_rest;
  }
  a.to[blockIdx.x * a.row_bytes + at] = from[packed];
}

BlockPlaces places_of(DType type) {
  const BlockLayout layout = block_layout(type);
  const int rest = layout.bytes % 4;
  return {layout.bytes,       layout.bytes / 4, rest, layout.rest_first ? rest : 0,
          layout.first_codes, layout.codes};
}

template <class Unit>
void unpack_units(int64_t rows, const UnpackArgs& args, Stream stream) {
  launch(unpack_kernel<Unit>, elementwise_launch(rows, args.units, 1), stream, args);
}

void unpack_codes(const Weight& packed, const Weight& to, Stream stream) {
  const WeightFormat& format = to.format;
  if (is_grouped(format)) {
    const int64_t bytes = grouped_row_bytes(format, to.cols);
    const UnpackArgs args{packed.data, to.data, bytes / 4, bytes};
    if (!is_block(format.dtype)) return unpack_units<uint32_t>(to.rows, args, stream);
    return launch(unpack_blocks_kernel, elementwise_launch(to.rows, bytes, 1), stream, args,
                  places_of(format.dtype));
  }
  const int64_t bytes = to.cols * dtype_bytes(format.dtype);
  const int64_t cells = panel_bytes(format.dtype, to.cols) / kCellBytes;
  unpack_units<uint32_t>(to.rows, {packed.data, to.data, cells, bytes}, stream);
}

// A plane with some values of `bytes` bytes for each row.
void unpack_values(const std::byte* from, std::byte* to, int64_t rows, int64_t values,
                   int64_t bytes, Stream stream) {
  const UnpackArgs args{from, to, values, values * bytes};
  if (bytes == 1) return unpack_units<uint8_t>(rows, args, stream);
  if (bytes == 2) return unpack_units<uint16_t>(rows, args, stream);
  unpack_units<uint32_t>(rows, args, stream);
}

}  // namespace

bool is_interleaved(const WeightFormat& format, Plane plane) {
  if (plane == Plane::codes) return true;
  if (format.scales != ScaleKind::grouped) return false;
  return plane == Plane::scales || plane == Plane::zeros ||
         (plane == Plane::outers && format.outer_groups > 0);
}

void unpack(const Weight& packed, const Weight& to, Stream stream) {
  check(packed.format.layout == WeightLayout::packed && to.format.layout == WeightLayout::rows &&
            layout_of(MatrixLayout::by_codes, to.format) == WeightLayout::rows &&
            packed.rows == to.rows && packed.cols == to.cols && to.rows % kPanelRows == 0,
        "unpack: whole panels of the same shape, which a device has in rows");
  if (to.rows == 0 || to.cols == 0) return;
  unpack_codes(packed, to, stream);
  if (to.format.scales != ScaleKind::grouped) return;
  const int64_t groups = groups_of(to.format, to.cols);
  for (Plane plane : {Plane::scales, Plane::zeros, Plane::outers}) {
    if (to.plane(plane) == nullptr || !is_interleaved(to.format, plane)) continue;
    const bool outer = plane == Plane::outers;
    const int64_t bytes = plane == Plane::zeros ? dtype_bytes(to.format.zero_type)
                          : outer               ? int64_t{sizeof(float)}
                                                : dtype_bytes(to.format.scale_type);
    unpack_values(packed.plane(plane), to.plane(plane), to.rows,
                  outer ? outers_of(to.format, to.cols) : groups, bytes, stream);
  }
}

}  // namespace sluice::cuda
