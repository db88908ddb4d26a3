// Linear layers on tiles: y = x w^T, of bf16 and E4M3 weights (decoded to bf16) and of bytes.
//
// Order of sums, for every number of rows: an output element has one tile element, which takes the
// columns in steps of a tile (32 bf16 or 64 i8), in order; padding counts as zeros. An interrupted
// sum passes through memory as it is. So a row's result depends on nothing but the row. With block
// scales each 128 columns are summed from zero, then scaled, then added.
#pragma once

#include "kernels/cpu/amx/few_rows.h"
#include "kernels/cpu/amx/many_rows.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

template <class Tiles, Stored kStored>
void multiply_panels(const LinearJob& job, int64_t begin, int64_t end, const AmxScratch& scratch) {
  if (job.streams == 0) return ManyRows<Tiles, kStored>(job, begin, end, scratch).multiply();
  multiply_streams<Tiles, kStored>(job, begin, end, scratch);
}

// Ops::linear for LinearJob::tiles.
template <class Tiles>
void linear_on_tiles(const LinearJob& job, int64_t begin, int64_t end, std::byte* scratch) {
  const TilesInUse<Tiles> tiles(at_most(job.rows, kAmxRows));
  const AmxScratch parts(scratch);
  if (job.x_offsets != nullptr) return multiply_panels<Tiles, Stored::i8>(job, begin, end, parts);
  if (job.dtype == DType::f8_e4m3)
    return multiply_panels<Tiles, Stored::e4m3>(job, begin, end, parts);
  multiply_panels<Tiles, Stored::bf16>(job, begin, end, parts);
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
