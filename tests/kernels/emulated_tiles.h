// The tile registers of AMX in plain C++, one set a thread: the operations and the order of sums of
// Intel's SDM, volume 2 (LDTILECFG, TILELOADD, TILELOADDT1, TILESTORED, TDPBF16PS, TDPBSUD). Uses
// that the processor answers with an exception are faults here, and so are those that it allows but
// our kernels never mean: a configuration over another, or a tile that is used before something was
// put into it.
//
// No inline function of another header may be used here (kernels/cpu/ops.h).
#pragma once

#include <cstring>

#include "kernels/cpu/amx/tiles.h"

namespace sluice::test {
[[noreturn]] void tile_fault(const char* what);  // says what and aborts
}

namespace sluice::cpu::SLUICE_ISA {
namespace {

struct EmulatedRegisters {
  TileConfig config;
  bool configured = false;
  bool written[8] = {};
  uint8_t bytes[8][16][64] = {};

  int rows(int tile) const { return config.rows[tile]; }
  int line(int tile) const { return config.line_bytes[tile]; }
};
thread_local EmulatedRegisters emulated;

inline void need(bool holds, const char* what) {
  if (!holds) test::tile_fault(what);
}
inline void need_tile(int tile) {
  need(emulated.configured && emulated.rows(tile) > 0, "the tile is configured");
}
inline void need_written(int tile) {
  need_tile(tile);
  need(emulated.written[tile], "the tile holds something");
}

inline void emulate_configure(const TileConfig& config) {
  need(config.palette == 1 && config.start_row == 0, "palette 1, from row 0");
  for (uint8_t byte : config.reserved) need(byte == 0, "reserved bytes are zero");
  for (int t = 0; t < 16; ++t) {
    need(config.rows[t] <= 16 && config.line_bytes[t] <= 64, "a tile has 16 rows of 64 bytes");
    need((config.rows[t] == 0) == (config.line_bytes[t] == 0), "rows and bytes, or neither");
    need(t < 8 || config.rows[t] == 0, "there are eight tiles");
  }
  need(!emulated.configured, "tiles are released before they are configured anew");
  emulated = {};
  emulated.config = config;
  emulated.configured = true;
}

inline void emulate_zero(int tile) {
  need_tile(tile);
  std::memset(emulated.bytes[tile], 0, sizeof emulated.bytes[tile]);
  emulated.written[tile] = true;
}

inline void emulate_load(int tile, const void* from, int64_t stride) {
  emulate_zero(tile);
  for (int r = 0; r < emulated.rows(tile); ++r) {
    std::memcpy(emulated.bytes[tile][r], static_cast<const uint8_t*>(from) + r * stride,
                static_cast<size_t>(emulated.line(tile)));
  }
}

inline void emulate_store(int tile, void* to, int64_t stride) {
  need_written(tile);
  for (int r = 0; r < emulated.rows(tile); ++r) {
    std::memcpy(static_cast<uint8_t*>(to) + r * stride, emulated.bytes[tile][r],
                static_cast<size_t>(emulated.line(tile)));
  }
}

// Checks what all products need.
inline void need_product(int c, int a, int b) {
  need(c != a && c != b && a != b, "three tiles");
  const int tiles[] = {c, a, b};
  for (int tile : tiles) {
    need_written(tile);
    need(emulated.line(tile) % 4 == 0, "whole words");
  }
  need(emulated.rows(c) == emulated.rows(a) && emulated.line(c) == emulated.line(b) &&
           emulated.line(a) / 4 == emulated.rows(b),
       "shapes that fit");
}

inline float flushed(float x) {  // DAZ and FTZ
  const auto bits = __builtin_bit_cast(uint32_t, x);
  return (bits & 0x7f800000) == 0 ? __builtin_bit_cast(float, bits & 0x80000000) : x;
}
inline float bf16_at(const uint8_t* line, int64_t i) {
  uint16_t code = 0;
  std::memcpy(&code, line + 2 * i, sizeof code);
  return flushed(__builtin_bit_cast(float, uint32_t{code} << 16));
}

inline void emulate_product_bf16(int c, int a, int b) {
  need_product(c, a, b);
  const int words = emulated.line(c) / 4;
  float weights[16][32];
  for (int64_t k = 0; k < emulated.rows(b); ++k) {
    for (int i = 0; i < 2 * words; ++i) weights[k][i] = bf16_at(emulated.bytes[b][k], i);
  }
  for (int64_t m = 0; m < emulated.rows(c); ++m) {
    float sums[32] = {};  // of even and odd columns
    for (int64_t k = 0; k < emulated.line(a) / 4; ++k) {
      const float even = bf16_at(emulated.bytes[a][m], 2 * k);
      const float odd = bf16_at(emulated.bytes[a][m], 2 * k + 1);
      for (int i = 0; i < 2 * words; ++i)
        sums[i] = flushed(__builtin_fmaf(i % 2 == 0 ? even : odd, weights[k][i], sums[i]));
    }
    for (int64_t n = 0; n < words; ++n) {
      float sum = 0;
      std::memcpy(&sum, emulated.bytes[c][m] + 4 * n, sizeof sum);
      sum = flushed(flushed(sum) + flushed(sums[2 * n] + sums[2 * n + 1]));
      std::memcpy(emulated.bytes[c][m] + 4 * n, &sum, sizeof sum);
    }
  }
}

inline void emulate_product_i8(int c, int a, int b) {
  need_product(c, a, b);
  for (int64_t m = 0; m < emulated.rows(c); ++m) {
    for (int64_t n = 0; n < emulated.line(c) / 4; ++n) {
      uint32_t sum = 0;
      std::memcpy(&sum, emulated.bytes[c][m] + 4 * n, sizeof sum);
      for (int64_t k = 0; k < emulated.line(a) / 4; ++k) {
        for (int64_t i = 0; i < 4; ++i) {
          const auto x = static_cast<int8_t>(emulated.bytes[a][m][4 * k + i]);
          sum += static_cast<uint32_t>(x * int{emulated.bytes[b][k][4 * n + i]});
        }
      }
      std::memcpy(emulated.bytes[c][m] + 4 * n, &sum, sizeof sum);
    }
  }
}

// Has the interface of HardwareTiles.
struct EmulatedTiles {
  static void configure(const TileConfig& config) { emulate_configure(config); }
  static void release() { emulated = {}; }
  template <int kTile>
  static void zero() {
    emulate_zero(kTile);
  }
  template <int kTile>
  static void load(const void* from, int64_t stride) {
    emulate_load(kTile, from, stride);
  }
  template <int kTile>
  static void load_past(const void* from, int64_t stride) {
    emulate_load(kTile, from, stride);
  }
  template <int kTile>
  static void store(void* to, int64_t stride) {
    emulate_store(kTile, to, stride);
  }
  template <int kC, int kA, int kB>
  static void add_product_bf16() {
    emulate_product_bf16(kC, kA, kB);
  }
  template <int kC, int kA, int kB>
  static void add_product_i8() {
    emulate_product_i8(kC, kA, kB);
  }
};

}  // namespace
}  // namespace sluice::cpu::SLUICE_ISA
