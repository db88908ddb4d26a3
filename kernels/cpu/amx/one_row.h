// One row of x: the products of tiles on vectors, with the same bits. Memory is the limit there,
// and vector loads that are fetched ahead get 2 to 9 % more of it than tile loads.
#pragma once

#include "kernels/cpu/amx/stored_steps.h"
#include "kernels/cpu/simd/streams.h"

#if defined(__AVX512BF16__)

namespace sluice::cpu::SLUICE_ISA {
namespace {

// Denormals count as zero, as on tiles. Arithmetic that this is for must be in a function that is
// not inlined, lest the compiler moves it out.
class DenormalsAreZero {
 public:
  DenormalsAreZero() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kInputs | kResults); }
  ~DenormalsAreZero() { _mm_setcsr(before_); }
  DenormalsAreZero(const DenormalsAreZero&) = delete;
  DenormalsAreZero& operator=(const DenormalsAreZero&) = delete;

 private:
  static constexpr uint32_t kInputs = 0x0040, kResults = 0x8000;  // DAZ, FTZ
  uint32_t before_;
};

// The element of a tile that a lane is: C += A B of TDPBF16PS.
struct Bf16Sums {
  Vf sum{}, even{}, odd{};

  [[gnu::always_inline]] void add(Vu x, Vu w) {
    even = fma(as_floats(x << 16), as_floats(w << 16), even);
    odd = fma(as_floats(x & 0xffff0000), as_floats(w & 0xffff0000), odd);
  }
  // Zeros that fill a step up make a negative zero positive.
  [[gnu::always_inline]] void fill_up() {
    even += Vf{};
    odd += Vf{};
  }
  [[gnu::always_inline]] void end_step() {
    sum += even + odd;
    even = odd = Vf{};
  }
};
// Sums of the instruction TDPBSUD.
struct ByteSums {
  Vu sum{};

  [[gnu::always_inline]] void add(Vu x, Vu w) {
    sum = reinterpret_cast<Vu>(_mm512_dpbusd_epi32(reinterpret_cast<__m512i>(sum),
                                                   reinterpret_cast<__m512i>(w),
                                                   reinterpret_cast<__m512i>(x)));
  }
  void fill_up() {}
  void end_step() {}
};

template <Stored kStored, int kPanels>
class RowOfPanels {
  using Steps = StoredSteps<kStored>;
  using Sums = std::conditional_t<Steps::kBytes, ByteSums, Bf16Sums>;
  static constexpr int kCellLines = static_cast<int>(Steps::kCellTile / kTileLine);
  static constexpr int64_t kAheadBytes = 4096 / kPanels;  // that are fetched, of each panel

 public:
  RowOfPanels(const LinearJob& job, StreamedPanels panels)
      : x_(reinterpret_cast<const std::byte*>(job.x)),
        panel_(job.weight + panels.first * job.panel_bytes),
        panel_bytes_(job.panel_bytes),
        apart_(panels.apart * job.panel_bytes) {}

  // Sums of steps [begin, end), 16 floats or integers of each panel, kTileFloats apart.
  [[gnu::noinline]] void sum(int64_t begin, int64_t end, float* to) const {
    Sums sums[kPanels];
    for (int64_t step = begin; step < end; ++step) {
      const int64_t at = step * Steps::kStepBytes;
      const int64_t bytes = at_most(Steps::kStepBytes, panel_bytes_ - at);
      const std::byte* x = x_ + step * kTileLine;
      if (bytes == Steps::kStepBytes) [[likely]] {
#pragma GCC unroll 4
        for (int64_t cell = 0; cell < Steps::kStepBytes; cell += kCell)
          add_cells(x + cell / kCell * kCellLines * 4, panel_ + at + cell, sums);
      } else {
        for (int64_t cell = 0; cell < bytes; cell += kCell)
          add_cells(x + cell / kCell * kCellLines * 4, panel_ + at + cell, sums);
#pragma GCC unroll 4
        for (Sums& panel : sums) panel.fill_up();
      }
#pragma GCC unroll 4
      for (Sums& panel : sums) panel.end_step();
    }
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) store(to + p * kTileFloats, sums[p].sum);
  }

 private:
  // The next cell of each panel.
  [[gnu::always_inline]] void add_cells(const std::byte* x, const std::byte* w,
                                        Sums (&sums)[kPanels]) const {
    uint32_t units[kCellLines];
    std::memcpy(units, x, sizeof units);
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      const std::byte* cell = w + p * apart_;
      __builtin_prefetch(cell + kAheadBytes, 0, 2);
      const Vu raw = load_bits(cell);
      if constexpr (Steps::kCodes) {
        sums[p].add(Vu{} + units[0], reinterpret_cast<Vu>(cells_.template operand<0>(raw)));
        sums[p].add(Vu{} + units[1], reinterpret_cast<Vu>(cells_.template operand<1>(raw)));
      } else {
        sums[p].add(Vu{} + units[0], raw);
      }
    }
  }

  const std::byte* x_;
  const std::byte* panel_;  // of the first stream
  const int64_t panel_bytes_, apart_;
  struct None {};
  [[no_unique_address]] std::conditional_t<Steps::kCodes, Float8ToBf16<DType::f8_e4m3>, None>
      cells_;
};

template <Stored kStored, int kPanels>
void one_row(const LinearJob& job, StreamedPanels panels, const AmxScratch& scratch) {
  const RowOfPanels<kStored, kPanels> row(job, panels);
  const int64_t steps = job.units / kStepUnits;
  const auto sum = [&row](int64_t begin, int64_t end, float* to) {
    const DenormalsAreZero mode;
    row.sum(begin, end, to);
  };
  if (job.block_scales == nullptr) return sum(0, steps, scratch.sums);
  for (int64_t step = 0; step < steps; step += kBlockSteps) {
    const int64_t end = at_most(step + kBlockSteps, steps);
    sum(step, end, scratch.stage);
    for (int64_t p = 0; p < kPanels; ++p) {
      const int64_t at = p * kTileFloats;
      add_scaled(job, 0, panels.panel(p), end - 1, scratch.stage + at, scratch.sums + at);
    }
  }
}

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA

#endif
