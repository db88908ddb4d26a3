#include "kernels/cuda/experts.h"

#include <algorithm>
#include <limits>

#include "quant/groups.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::cuda {
namespace {

constexpr uint64_t kAlignment = 256;
constexpr int64_t kMostI8Exact = 8192;     // columns: an accumulator's sums stay below 2^24
constexpr int64_t kOutColumns = 1024;      // of pairs' outputs at a time
constexpr int64_t kFewPairsOfExpert = 80;  // that smaller tiles serve better

int64_t padded(int64_t value, int64_t unit) { return ceil_div(value, unit) * unit; }

bool has_groups(const ExpertMatrix& m) { return is_grouped(m.first.format); }

bool groups_fit(const ExpertMatrix& m) {
  return m.first.format.layout == WeightLayout::rows && m.first.format.bits == 4 &&
         m.first.order == nullptr && m.step % 16 == 0 && gemv_grouped_fits(m.first) &&
         m.first.rows * m.first.cols <= std::numeric_limits<int32_t>::max();
}

bool format_fits(const ExpertMatrix& m) {
  if (has_groups(m)) return groups_fit(m);
  const WeightFormat& f = m.first.format;
  const bool known = (f.dtype == DType::bf16 && f.scales == ScaleKind::none) ||
                     (f.dtype == DType::f8_e4m3 && f.scales != ScaleKind::none &&
                      f.scales != ScaleKind::grouped) ||
                     (f.dtype == DType::i8 && m.first.cols <= kMostI8Exact);
  return known && f.layout == WeightLayout::packed && m.step % 16 == 0 &&
         m.first.rows * m.first.cols <= std::numeric_limits<int32_t>::max() &&
         reinterpret_cast<uintptr_t>(m.first.data) % 16 == 0;
}

// Columns of the pairs' float32 matrix: what `up` makes, where its sums are rounded to codes, or
// some of what `down` makes.
int64_t pair_cols(const ExpertNeeds& n) {
  return padded(std::max(n.width, std::min(n.hidden, kOutColumns)), kMmaRows);
}

// Pieces of the workspace.
class Pieces {
 public:
  explicit Pieces(std::byte* begin) : begin_(begin) {}
  template <class T>
  T* take(int64_t count) {
    std::byte* at = begin_ + used_;
    used_ += round_up(static_cast<uint64_t>(count) * sizeof(T), kAlignment);
    return reinterpret_cast<T*>(at);
  }
  uint64_t used() const { return used_; }

 private:
  std::byte* begin_;
  uint64_t used_ = 0;
};

struct Scratch {
  Bf16Rows x, inner;  // with room for scales
  float *x_scales, *inner_scales;
  Tensor pairs;
  ExpertLists lists;  // for tiles of the smallest kind
};

Scratch divide(const ExpertNeeds& n, Pieces& pieces) {
  const int64_t pairs = n.rows * n.top_k;
  const int64_t x_cols = padded(n.hidden, kMmaCols), inner_cols = padded(n.width, kMmaCols);
  Scratch s;
  s.x = {pieces.take<uint16_t>(n.rows * x_cols), n.rows, x_cols, {}};
  s.x_scales = pieces.take<float>(n.rows * ceil_div(n.hidden, kScaleBlock));
  s.inner = {pieces.take<uint16_t>(pairs * inner_cols), pairs, inner_cols, {}};
  s.inner_scales = pieces.take<float>(pairs * ceil_div(n.width, kScaleBlock));
  const int64_t cols = pair_cols(n);
  s.pairs = {reinterpret_cast<std::byte*>(pieces.take<float>(pairs * cols)), DType::f32, pairs,
             cols, cols};
  s.lists.rows = pieces.take<int32_t>(pairs);
  s.lists.places = pieces.take<int32_t>(pairs);
  s.lists.most_tiles = most_expert_tiles(pairs, n.count, 64);
  s.lists.tiles = pieces.take<ExpertTile>(s.lists.most_tiles);
  return s;
}

// The place for scales of codes of x; none where the weight takes x as it is.
InputScales input_scales(const WeightFormat& w, float* at, int64_t cols) {
  if (w.dtype == DType::i8) return {at};
  if (!w.quantized_input) return {};
  if (w.scales != ScaleKind::per_block) return {at};
  return {at, ceil_div(cols, kScaleBlock), 1};
}

// Columns of the cells in whose order few rows' columns are; 0: they are in order.
int64_t cell_of(const WeightFormat& w) { return is_grouped(w) ? 0 : cell_cols(w.dtype); }

// Rounds x as the weight wants it. `many`: codes with scales of blocks are multiplied by these, and
// columns are in order.
Bf16Rows rounded(Tensor x, const WeightFormat& w, Bf16Rows to, float* scales, bool many,
                 Stream stream) {
  to.scales = input_scales(w, scales, x.cols);
  to.scaled = many && to.scales.block_step != 0;
  to.cell = many ? 0 : cell_of(w);
  if (w.dtype == DType::i8) {
    round_rows_i8(x, to, stream);
  } else {
    round_rows_bf16(x, to, stream);
  }
  return to;
}

bool takes_codes(const WeightFormat& w) { return w.quantized_input || w.dtype == DType::i8; }

ExpertInner inner_of(const Scratch& s, const ExpertWeights& w) {
  if (takes_codes(w.down.first.format))
    return {.rounded = {}, .unrounded = s.pairs.columns(0, w.width)};
  return {.rounded = s.inner};
}

void few(Tensor x, const ExpertWeights& w, int64_t top_k, const ExpertChoices& choices,
         const SharedExpert& shared, const Scratch& s, Tensor y, Stream stream) {
  const WeightFormat &up = w.up.first.format, &down = w.down.first.format;
  if (has_groups(w.up)) {
    experts_grouped_up(rounded(x, up, s.x, nullptr, false, stream), w, top_k, choices, s.inner,
                       stream);
    return experts_grouped_down(s.inner, w, top_k, choices, shared, y, stream);
  }
  ExpertInput input;
  if (!takes_codes(up) && experts_few_round(x)) {
    input.unrounded = x;
  } else {
    input.rounded = rounded(x, up, s.x, s.x_scales, false, stream);
  }
  ExpertInner inner = inner_of(s, w);
  inner.rounded.cell = cell_of(down);
  experts_few_up(input, w, top_k, choices, x.rows, inner, stream);
  Bf16Rows codes = inner.rounded;
  if (inner.unrounded.data != nullptr)
    codes = rounded(inner.unrounded, down, s.inner, s.inner_scales, false, stream);
  experts_few_down(codes, w, top_k, choices, shared, y, stream);
}

void many(Tensor x, const ExpertWeights& w, int64_t top_k, const ExpertChoices& choices,
          const SharedExpert& shared, Scratch& s, Tensor y, Stream stream) {
  const int64_t pairs = x.rows * top_k;
  s.lists.tile_rows = expert_tile_rows(pairs, w.count);
  s.lists.most_tiles = most_expert_tiles(pairs, w.count, s.lists.tile_rows);
  make_expert_lists(choices.experts, x.rows, top_k, w.count, s.lists, stream);
  const Bf16Rows input = rounded(x, w.up.first.format, s.x, s.x_scales, true, stream);
  const ExpertInner inner = inner_of(s, w);
  experts_many_up(input, w, s.lists, inner, stream);
  Bf16Rows codes = s.inner;
  if (inner.unrounded.data != nullptr)
    codes = rounded(inner.unrounded, w.down.first.format, s.inner, s.inner_scales, true, stream);
  auto part_of = [](Tensor t, int64_t first, int64_t cols) {
    return t.data == nullptr ? t : t.columns(first, cols);
  };
  for (int64_t first = 0; first < y.cols; first += s.pairs.cols) {
    const int64_t cols = std::min(s.pairs.cols, y.cols - first);
    const Tensor out = s.pairs.columns(0, cols);
    experts_many_down(codes, w, s.lists, first, out, stream);
    add_experts(out, s.lists, top_k, choices.weights,
                {part_of(shared.out, first, cols), shared.weights}, y.columns(first, cols), stream);
  }
}

}  // namespace

int64_t expert_tile_rows(int64_t pairs, int64_t count) {
  return pairs <= kFewPairsOfExpert * count ? 64 : 128;
}

bool experts_fit(const ExpertWeights& w, int64_t top_k, Compute compute) {
  return compute == Compute::bf16 && top_k <= kMostTopK && w.count <= kMostExperts &&
         gating_fits(w.activation.kind) && (!has_limit(w.activation.kind) || w.second > 0) &&
         format_fits(w.up) && format_fits(w.down) && has_groups(w.up) == has_groups(w.down);
}

uint64_t experts_workspace_bytes(const ExpertNeeds& needs) {
  if (needs.count == 0) return 0;
  Pieces pieces(nullptr);
  divide(needs, pieces);
  return pieces.used();
}

void experts(Tensor x, const ExpertWeights& w, int64_t top_k, const ExpertChoices& choices,
             const SharedExpert& shared, std::span<std::byte> workspace, Tensor y, Stream stream) {
  check(x.cols == w.up.first.cols && x.rows == y.rows && y.cols == w.down.first.rows &&
            w.width == w.down.first.cols,
        "experts: x and y of their matrices");
  check(shared.out.data == nullptr || (shared.out.rows == y.rows && shared.out.cols == y.cols),
        "experts: a shared output like y");
  if (x.rows == 0) return;
  Pieces pieces(workspace.data());
  Scratch s = divide({x.rows, top_k, w.count, x.cols, w.width}, pieces);
  check(pieces.used() <= workspace.size(), "experts: workspace");
  x.rows <= kFewRows ? few(x, w, top_k, choices, shared, s, y, stream)
                     : many(x, w, top_k, choices, shared, s, y, stream);
}

}  // namespace sluice::cuda
