// The eight tile registers of AMX, as the kernels of this directory use them. These are templates
// over a class with the functions of HardwareTiles, so that a test can run the same source on
// emulated tiles (tests/kernels/emulated_tiles.h) on any machine.
//
// Layouts and order of sums are those of Intel's SDM, volume 2: a tile has up to 16 rows of up to
// 64 bytes. C += A B takes A row-major, its rows k-contiguous, and B in rows of 16 output channels,
// each with two bf16 (k, k + 1) or four bytes: 16 cells of quant/format.h are such a tile.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int64_t kTileLine = 64;     // bytes of a tile's row
constexpr int64_t kTileBytes = 1024;  // of 16 rows

// The memory operand of LDTILECFG.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t line_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

#if defined(__x86_64__)

// Own assembly in place of the compiler's intrinsics: GCC's do not say which memory they read, so
// that stores to a configuration, or to weights that were just decoded, may be dropped or moved
// behind them (GCC 12 does so with _tile_loadconfig).
struct HardwareTiles {
  static void configure(const TileConfig& config) {
    asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
  }
  // Tiles that hold nothing need not be saved when the system switches threads.
  static void release() { asm volatile("tilerelease" ::: "memory"); }

  template <int kTile>
  static void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(kTile));
  }
  template <int kTile>
  static void load(const void* from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  // The same, for what is read once while other data must stay in L1: the lines go past it.
  template <int kTile>
  static void load_past(const void* from, int64_t stride) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  static void store(void* to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(kTile) : "memory");
  }
  // c += a b, of bf16 pairs into float32: within the instruction even and odd columns are summed
  // apart, by fused multiply-adds from zero, and their sum is added to c. Denormals count as zero.
  template <int kC, int kA, int kB>
  static void add_product_bf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
  // c += a b, of bytes into int32: a with a sign, b without.
  template <int kC, int kA, int kB>
  static void add_product_i8() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(kC), "i"(kA), "i"(kB));
  }
};

#endif

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
