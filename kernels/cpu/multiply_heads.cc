#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/launch_checks.h"
#include "quant/float8.h"

namespace sluice {
namespace {

constexpr int64_t kHeadRows = 32;  // of x, for which a weight's rows are decoded once
constexpr int64_t kSums = 16;      // of a product's terms, each of every kSums-th

// Sums are of sixteen parts, added in order, whatever the instructions.
float dot(const float* a, const float* b, int64_t count) {
  float sums[kSums] = {};
  int64_t k = 0;
  for (; k + kSums <= count; k += kSums) {
    for (int64_t i = 0; i < kSums; ++i) sums[i] += a[k + i] * b[k + i];
  }
  for (int64_t i = 0; k + i < count; ++i) sums[i] += a[k + i] * b[k + i];
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}

constexpr int64_t kColumns = 32;  // of sums that stay in registers

// to[k] += the sum over i of factors[i] w[i][k], term by term; `fresh`: from zero.
template <int64_t kCount>
void add_columns(const float* factors, const float* w, int64_t rows, int64_t stride, bool fresh,
                 float* to) {
  float sums[kCount];
  for (int64_t k = 0; k < kCount; ++k) sums[k] = fresh ? 0 : to[k];
  for (int64_t i = 0; i < rows; ++i, w += stride) {
    for (int64_t k = 0; k < kCount; ++k) sums[k] += factors[i] * w[k];
  }
  for (int64_t k = 0; k < kCount; ++k) to[k] = sums[k];
}

void add_products(const float* factors, const float* w, int64_t rows, int64_t cols, bool fresh,
                  float* to) {
  int64_t k = 0;
  for (; k + kColumns <= cols; k += kColumns)
    add_columns<kColumns>(factors, w + k, rows, cols, fresh, to + k);
  for (; k < cols; ++k) add_columns<1>(factors, w + k, rows, cols, fresh, to + k);
}

// The float32 value of each E4M3 code.
const std::array<float, 256>& e4m3_values() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> all;
    for (size_t code = 0; code < all.size(); ++code)
      all[code] = e4m3_to_float(static_cast<uint8_t>(code));
    return all;
  }();
  return values;
}

// A row with the bits of decode_row(). bf16 and E4M3, which most checkpoints have, are read cell by
// cell (quant/format.h).
void decode_fast(const Weight& w, int64_t row, float* out) {
  const WeightFormat& format = w.format;
  const bool bf16 = format.dtype == DType::bf16, e4m3 = format.dtype == DType::f8_e4m3;
  if (format.layout != WeightLayout::packed || !(bf16 || e4m3)) return decode_row(w, row, out);
  const std::byte* from = w.data + element_offset(w, row, 0);
  if (bf16) {
    for (int64_t c = 0; c < w.cols; ++c) {
      uint16_t bits;
      std::memcpy(&bits, from + c / 2 * kCellBytes + c % 2 * 2, sizeof bits);
      out[c] = bf16_to_float(bits);
    }
  } else {
    const std::array<float, 256>& values = e4m3_values();
    for (int64_t c = 0; c < w.cols; ++c)
      out[c] = values[static_cast<size_t>(from[c / 4 * kCellBytes + c % 4 / 2 * 8 + c % 2])];
  }
  if (format.scales == ScaleKind::none) return;
  const int64_t wide = format.scales == ScaleKind::per_block ? format.scale_cols : w.cols;
  for (int64_t first = 0; first < w.cols; first += wide) {
    const float scale = scale_at(w, row, first);
    for (int64_t c = first; c < std::min(first + wide, w.cols); ++c) out[c] *= scale;
  }
}

}  // namespace

int64_t heads_workspace(int64_t head_cols, int threads) {
  return threads * kPanelRows * head_cols * static_cast<int64_t>(sizeof(float));
}

// A job is a head and some rows of x.
void CpuKernels::multiply_heads(Tensor x, int64_t x_step, const HeadMatrices& m,
                                HeadProduct product, Tensor y, int64_t y_step) const {
  check_multiply_heads(x, x_step, m, product, y, y_step);
  const int64_t cols = m.weight.cols, end = std::min(m.first_row + m.weight.rows, m.heads * m.rows);
  const int64_t first_head = m.first_row / m.rows, heads = ceil_div(end, m.rows) - first_head;
  const int64_t blocks = ceil_div(x.rows, kHeadRows);
  const bool plain = product == HeadProduct::plain;
  const int64_t inputs = plain ? m.rows : cols, outputs = plain ? cols : m.rows;
  auto* work = reinterpret_cast<float*>(scratch(heads_workspace(cols, pool_.size())));
  const auto job = [&](int64_t index, float* decoded) {
    const int64_t head = first_head + index / blocks, row = index % blocks * kHeadRows;
    const int64_t last_row = std::min(row + kHeadRows, x.rows);
    const int64_t from = std::max(m.first_row, head * m.rows);
    const int64_t to = std::min(end, (head + 1) * m.rows);
    for (int64_t r = row; from == head * m.rows && r < last_row; ++r)
      std::copy_n(x.row<float>(r) + head * x_step + inputs, m.tail,
                  y.row<float>(r) + head * y_step + outputs);
    for (int64_t some = from; some < to; some += kPanelRows) {
      const int64_t count = std::min(kPanelRows, to - some), at = some - head * m.rows;
      for (int64_t i = 0; i < count; ++i)
        decode_fast(m.weight, some + i - m.first_row, decoded + i * cols);
      for (int64_t r = row; r < last_row; ++r) {
        const float* in = x.row<float>(r) + head * x_step;
        float* out = y.row<float>(r) + head * y_step;
        if (plain) {
          add_products(in + at, decoded, count, cols, at == 0, out);
          continue;
        }
        for (int64_t i = 0; i < count; ++i) out[at + i] = dot(in, decoded + i * cols, cols);
      }
    }
  };
  pool_.parallel_for(heads * blocks, 1, [&](int64_t begin, int64_t stop, int thread) {
    for (int64_t index = begin; index < stop; ++index)
      job(index, work + thread * kPanelRows * cols);
  });
}

}  // namespace sluice
