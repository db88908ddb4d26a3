#include "kernels/cpu/simd/cells.h"
#include "kernels/cpu/simd/functions.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// Prefetch distance of stored cells: the next run of the same panel.
constexpr int64_t kPrefetchBytes = 2048;

template <int kUnit, class Cells>
void store_unit(const Cells& cells, typename Cells::Raw raw, std::byte* out) {
  if constexpr (kUnit < Cells::kUnits) {
    store(out + kUnit * kCell, cells.template operand<kUnit>(raw));
    store_unit<kUnit + 1>(cells, raw, out);
  }
}

template <class Cells>
void decode_cells(const std::byte* from, int64_t count, std::byte* out) {
  const Cells cells;
  for (int64_t c = 0; c < count; ++c) {
    __builtin_prefetch(from + kPrefetchBytes);
    for (int64_t at = 0; at < kCell; at += kLanes * 4) {
      typename Cells::Raw raw;
      std::memcpy(&raw, from + at, sizeof raw);
      store_unit<0>(cells, raw, out + at);
    }
    from += kCell;
    out += Cells::kUnits * kCell;
  }
}

}  // namespace

void decode(DType dtype, const std::byte* cells, int64_t count, std::byte* out) {
  switch (dtype) {
    case DType::bf16:
      return decode_cells<Bf16ToF32>(cells, count, out);
    case DType::f16:
      return decode_cells<F16ToF32>(cells, count, out);
    case DType::f8_e4m3:
      return decode_cells<Float8ToBf16<DType::f8_e4m3>>(cells, count, out);
    case DType::f8_e5m2:
      return decode_cells<Float8ToBf16<DType::f8_e5m2>>(cells, count, out);
    default:
      return decode_cells<F32Cells>(cells, count, out);
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
