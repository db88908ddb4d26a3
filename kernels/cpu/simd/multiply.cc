// The micro-kernel under linear layers and attention. Output channels lie across lanes and every
// output element has one accumulator that takes the units in order; partial sums go through memory
// as float32, which is exact. So neither the tile's shape nor where a sum is interrupted can change
// a result.
#include <type_traits>

#include "kernels/cpu/simd/cells.h"
#include "kernels/cpu/simd/finish_sums.h"
#include "kernels/cpu/simd/functions.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

// Rows x panels of one tile, by registers: accumulators, the operands of a step, one unit of x.
// `units` are those of a cell.
#if defined(__AVX512F__)
constexpr int max_rows(int) { return 16; }
constexpr int max_panels(int rows, int units) {  // 24 of 32; decoding needs some more
  return units == 1 ? (rows <= 6 ? 4 : rows <= 12 ? 2 : 1) : rows <= 4 ? 4 : rows <= 8 ? 2 : 1;
}
#elif defined(__AVX2__)
constexpr int max_rows(int units) { return units == 1 ? 6 : 5; }
constexpr int max_panels(int rows, int units) {  // 12 of 16; 10 where cells are decoded
  return rows == 1 && units <= 2 ? 4 : rows <= (units == 1 ? 3 : 2) ? 2 : 1;
}
#else
constexpr int max_rows(int) { return 2; }
constexpr int max_panels(int rows, int units) { return rows == 1 && units == 1 ? 2 : 1; }
#endif
// Prefetching of weights ahead of the current cells, and loading of x.
struct Fetch {
  int level;              // of __builtin_prefetch: 2 into L2; 0 into L1, past the other caches
  int64_t bytes;          // ahead, of all panels of a tile together
  int cells;              // of a panel that are fetched, and taken, in a row
  bool spread_x = false;  // four rows of x are loaded together, where each load serves one product
};
// Few rows take weights as fast as memory gives them, and some cores have more lines on their way
// into L2 than into L1. Others multiply so fast that many rows' loads of x are what counts: those
// must not wait for L2. Narrower vectors are never that fast, and have no registers for more.
constexpr Fetch fetch_for(int rows, bool into_l1) {
  if (kLanes < 16) return {2, 4096, 1};
  if (!into_l1) return {2, rows > 8 ? 8192 : 4096, 1};
  if (rows <= 8) return {0, rows > 2 ? 6144 : 4096, 4};
  return {0, rows > 12 ? 16384 : 8192, 1, rows > 12};
}

template <class Cells, int kCols>
inline void add_row(Vu x, const typename Cells::Operand (&w)[kCols],
                    typename Cells::Sum (&sums)[kCols]) {
  const auto unit = Cells::unit(x);
#pragma GCC unroll 16
  for (int v = 0; v < kCols; ++v) sums[v] = Cells::multiply_add(sums[v], unit, w[v]);
}

template <int kUnit, bool kSpread, class Cells, int kRows, int kCols>
inline void add_unit(const Cells& cells, const typename Cells::Raw (&raw)[kCols], const uint32_t* x,
                     typename Cells::Sum (&sums)[kRows][kCols]) {
  typename Cells::Operand w[kCols];
#pragma GCC unroll 16
  for (int v = 0; v < kCols; ++v) w[v] = cells.template operand<kUnit>(raw[v]);
  int r = 0;
#if defined(__AVX512F__)
  // A core may load no more vectors in a cycle than it multiplies: weights would wait for a turn.
  if constexpr (kSpread && kCols == 1) {
    __m512i four = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
    asm("" : SLUICE_VECTOR(four));  // lest GCC makes it four loads again
    add_row<Cells>(reinterpret_cast<Vu>(_mm512_shuffle_epi32(four, _MM_PERM_AAAA)), w, sums[0]);
    add_row<Cells>(reinterpret_cast<Vu>(_mm512_shuffle_epi32(four, _MM_PERM_BBBB)), w, sums[1]);
    add_row<Cells>(reinterpret_cast<Vu>(_mm512_shuffle_epi32(four, _MM_PERM_CCCC)), w, sums[2]);
    add_row<Cells>(reinterpret_cast<Vu>(_mm512_shuffle_epi32(four, _MM_PERM_DDDD)), w, sums[3]);
    r = 4;
  }
#endif
#pragma GCC unroll 16
  for (; r < kRows; ++r) add_row<Cells>(Vu{} + x[r], w, sums[r]);
}

// kCells cells of each panel.
template <int kCells, bool kSpread, class Cells, int kRows, int kCols>
[[gnu::always_inline]] inline void add_cells(Cells& cells, const Product& a, const std::byte*& w,
                                             const uint32_t*& x,
                                             typename Cells::Sum (&sums)[kRows][kCols]) {
#pragma GCC unroll 4
  for (int c = 0; c < kCells; ++c) {
    typename Cells::Raw raw[kCols];
#pragma GCC unroll 16
    for (int v = 0; v < kCols; ++v) {
      std::memcpy(&raw[v], w + v / kVectors * a.panel_stride + v % kVectors * kLanes * 4,
                  sizeof raw[v]);
      cells.look_at(raw[v]);
    }
    add_unit<0, kSpread>(cells, raw, x, sums);
    if constexpr (Cells::kUnits >= 2) add_unit<1, kSpread>(cells, raw, x + a.x_stride, sums);
    if constexpr (Cells::kUnits == 4) {
      add_unit<2, kSpread>(cells, raw, x + 2 * a.x_stride, sums);
      add_unit<3, kSpread>(cells, raw, x + 3 * a.x_stride, sums);
    }
    x += Cells::kUnits * a.x_stride;
    w += kCell;
  }
}

template <class Cells, Fetch kFetch, int kRows, int kPanels>
void tile(const Product& a, int64_t first_row, int64_t first_panel) {
  constexpr int kCols = kPanels * kVectors;
  Cells cells;
  const uint32_t* x = a.x + first_row;
  const std::byte* w = a.w + first_panel * a.panel_stride;
  float* y = a.y + first_row * a.y_stride + first_panel * a.y_panel;
  const auto place = [&a](int r, int v) {
    return r * a.y_stride + v / kVectors * a.y_panel + v % kVectors * kLanes;
  };
  typename Cells::Sum sums[kRows][kCols];
  const bool from_y = a.resume && a.scales == nullptr;
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kCols; ++v) {
      sums[r][v] = typename Cells::Sum{};
      if (from_y) std::memcpy(&sums[r][v], y + place(r, v), sizeof sums[r][v]);
    }
  }
  constexpr int64_t kAhead = kFetch.bytes / kPanels, kTaken = kFetch.cells * Cells::kUnits;
  int64_t s = 0;
  for (; s + kTaken <= a.steps; s += kTaken) {
#pragma GCC unroll 16
    for (int line = 0; line < kPanels * kFetch.cells; ++line) {
      const int panel = line / kFetch.cells, cell = line % kFetch.cells;
      __builtin_prefetch(w + panel * a.panel_stride + cell * kCell + kAhead, 0, kFetch.level);
    }
    add_cells<kFetch.cells, kFetch.spread_x>(cells, a, w, x, sums);
  }
  if constexpr (kFetch.cells > 1) {
    for (; s < a.steps; s += Cells::kUnits) add_cells<1, kFetch.spread_x>(cells, a, w, x, sums);
  }
  if (cells.must_be_exact()) [[unlikely]] {  // so rare that one size of tile is enough
    for (int t = 0; t < kRows * kPanels; ++t)
      tile<typename Cells::Exact, fetch_for(1, false), 1, 1>(a, first_row + t / kPanels,
                                                             first_panel + t % kPanels);
    return;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 16
    for (int v = 0; v < kCols; ++v) {
      float* to = y + place(r, v);
      if constexpr (!Cells::kIntegers) {
        if (a.scales != nullptr) {
          if (a.sum_factor != 1) sums[r][v] *= a.sum_factor;
          if (a.x_scales != nullptr) sums[r][v] *= a.x_scales[(first_row + r) * a.scale_stride];
          sums[r][v] *= a.scales[(first_panel + v / kVectors) * a.scale_panel];
          if (a.resume) sums[r][v] += load(to);
        }
      }
      if (a.finish != nullptr) {
        const int64_t row = first_row + r, channel = to - a.finish->y - row * a.y_stride;
        store(to, finished(*a.finish, row, channel, as_floats(reinterpret_cast<Vu>(sums[r][v]))));
        continue;
      }
      store(to, sums[r][v]);
    }
  }
}

// All panels for kRows rows: as many at a time as registers allow, then fewer.
template <class Cells, Fetch kFetch, int kRows>
void rows_of_tiles(const Product& a, int64_t first_row) {
  constexpr int kMostPanels = max_panels(kRows, Cells::kUnits);
  int64_t p = 0;
  if constexpr (kMostPanels >= 4) {
    for (; p + 4 <= a.panels; p += 4) tile<Cells, kFetch, kRows, 4>(a, first_row, p);
  }
  if constexpr (kMostPanels >= 2) {
    for (; p + 2 <= a.panels; p += 2) tile<Cells, kFetch, kRows, 2>(a, first_row, p);
  }
  for (; p < a.panels; ++p) tile<Cells, kFetch, kRows, 1>(a, first_row, p);
}

// Cells that become several float32 operands. Decoding bounds them, so they take one way of
// fetching.
template <class Cells>
constexpr bool kWidened = Cells::kUnits > 1 && std::is_same_v<typename Cells::Operand, Vf>;

// rows_of_tiles for a number of rows that is known only now.
template <class Cells, int kRows>
void dispatch(const Product& a, int64_t first_row, int64_t rows) {
  if constexpr (kRows > 0) {
    if (rows == kRows) {
      if constexpr (!kWidened<Cells>) {
        if (a.fetch_into_l1)
          return rows_of_tiles<Cells, fetch_for(kRows, true), kRows>(a, first_row);
      }
      return rows_of_tiles<Cells, fetch_for(kRows, false), kRows>(a, first_row);
    }
    dispatch<Cells, kRows - 1>(a, first_row, rows);
  }
}

// Tiles of rows that take `rows` rows, all of about one size.
template <class Cells>
int64_t row_tiles(int64_t rows) {
  constexpr int kMaxRows = max_rows(Cells::kUnits);
  return (rows + kMaxRows - 1) / kMaxRows;
}

template <class Cells>
void multiply_cells(const Product& a) {
  constexpr int kMaxRows = max_rows(Cells::kUnits);
  const int64_t tiles = row_tiles<Cells>(a.rows);
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t row = a.rows * tile / tiles;
    dispatch<Cells, kMaxRows>(a, row, a.rows * (tile + 1) / tiles - row);
  }
}

template <class Cells>
struct Type {};

// Calls body(Type<Cells>()) for the cells of a type.
template <class Body>
auto with_cells(DType dtype, [[maybe_unused]] bool pairs, Body&& body) {
#if defined(__AVX512BF16__)
  if (pairs) {
    if (dtype == DType::bf16) return body(Type<Bf16Pairs>());
    return body(Type<Float8ToBf16<DType::f8_e4m3>>());
  }
#endif
  switch (dtype) {
    case DType::bf16:
      return body(Type<Bf16ToF32>());
    case DType::f16:
      return body(Type<F16ToF32>());
    case DType::f8_e4m3:
      return body(Type<Float8ToF32<DType::f8_e4m3>>());
    case DType::f8_e5m2:
      return body(Type<Float8ToF32<DType::f8_e5m2>>());
    case DType::i8:
      return body(Type<I8Cells>());
    default:
      return body(Type<F32Cells>());
  }
}

}  // namespace

void multiply(const Product& product) {
  with_cells(product.dtype, product.pairs,
             [&]<class Cells>(Type<Cells>) { multiply_cells<Cells>(product); });
}

int64_t panels_at_a_time(DType dtype, bool pairs, int64_t rows) {
  return with_cells(dtype, pairs, [&]<class Cells>(Type<Cells>) -> int64_t {
    const int64_t tiles = row_tiles<Cells>(rows);
    return max_panels(static_cast<int>((rows + tiles - 1) / tiles), Cells::kUnits);
  });
}

}  // namespace sluice::cpu::SLUICE_ISA
