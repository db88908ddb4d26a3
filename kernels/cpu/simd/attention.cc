// Attention over one partition of the positions: scores = q K^T and the weighted sum of values are
// the same tiled product as linear layers, with 16 keys, or 16 elements of the values, in the role
// of a panel's output channels. A query's sums depend on nothing but its own positions.
#include "kernels/cpu/simd/float8.h"
#include "kernels/cpu/simd/functions.h"
#include "kernels/cpu/simd/simd.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int64_t kCell = 64;
constexpr int64_t kRun = kAttentionRun;  // positions that are decoded together
constexpr int64_t kAhead = 32;           // positions that are fetched ahead
constexpr float kMinusInfinity = -__builtin_inff();

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
bool is_byte(DType dtype) { return dtype == DType::f8_e4m3 || dtype == DType::f8_e5m2; }
int64_t element_bytes(DType dtype) { return is_byte(dtype) ? 1 : dtype == DType::bf16 ? 2 : 4; }
// What keys become cells of: bf16 has all values of both FP8 types.
DType cell_dtype(DType dtype) { return is_byte(dtype) ? DType::bf16 : dtype; }

// Whether scores are more than scale * q k.
bool changes_scores(const AttentionJob& job) {
  return is_byte(job.dtype) || job.window > 0 || job.soft_cap > 0 || job.alibi_slopes != nullptr;
}

// The queries that have positions in a partition, and the scratch of one call.
struct Partition {
  Partition(const AttentionJob& j, int64_t index, float* scratch) : job(j) {
    begin = index * kPartition;
    // Row i attends to positions [0, first_position + i]; the leading rows may end before `begin`.
    const int64_t reached = begin - j.first_position;
    first_row = reached > 0 ? smaller(reached, j.rows) : 0;
    queries = (j.rows - first_row) * j.heads;
    longest = count(j.rows - 1);
    first = queries > 0 ? unseen(first_row) : 0;
    q = reinterpret_cast<uint32_t*>(scratch);
    scores = scratch + kQueries * j.padded_dim;
    weights = reinterpret_cast<uint32_t*>(scores + kQueries * kScoreStride);
    cells = reinterpret_cast<std::byte*>(weights + kQueries * kPartition);
    if (first >= longest) queries = 0;
    if (queries > 0) locate();
  }

  // Positions of this partition that row i attends to.
  int64_t count(int64_t i) const { return smaller(job.first_position + i + 1 - begin, kPartition); }

  // Of these, the first ones that are before its window.
  int64_t unseen(int64_t i) const {
    if (job.window == 0) return 0;
    return smaller(larger(job.first_position + i + 1 - job.window - begin, 0), count(i));
  }

  // Block after block, so that no position costs a division.
  void locate() {
    const int64_t bytes = job.head_dim * element_bytes(job.dtype);
    const int32_t* block = job.block_table + (begin + first) / job.block_size;
    int64_t offset = (begin + first) % job.block_size;
    for (int64_t k = first; k < longest; ++k) {
      at[k] = *block * job.block_bytes + offset * bytes;
      if (++offset == job.block_size) {
        offset = 0;
        ++block;
      }
    }
  }

  // Scales of the keys or values.
  void copy_scales(const std::byte* scales, float same, float* to) const {
    for (int64_t k = 0; k < first; ++k) to[k] = 0;
    const int32_t* block = job.block_table + (begin + first) / job.block_size;
    int64_t offset = (begin + first) % job.block_size;
    for (int64_t k = first; k < longest; ++k) {
      to[k] = same;
      if (scales != nullptr) std::memcpy(to + k, scales + *block * job.block_bytes + offset * 4, 4);
      if (++offset == job.block_size) {
        offset = 0;
        ++block;
      }
    }
    for (int64_t k = longest; k < kScoreStride; ++k) to[k] = 0;
  }

  const AttentionJob& job;
  int64_t begin;           // first position
  int64_t first_row;       // rows from here on have positions here
  int64_t queries;         // of those rows: row-major, heads within a row
  int64_t longest;         // positions of the last row, which has the most, up to their end
  int64_t first;           // positions before it are in no row's window, and are not touched
  uint32_t* q;             // [padded_dim][queries]
  float* scores;           // [queries][kScoreStride]
  uint32_t* weights;       // [kPartition][queries]
  std::byte* cells;        // of kRun keys or values
  int64_t at[kPartition];  // byte offset of each position's key and value
};

// The blocks of a sequence lie apart, so the hardware does not foresee the next one.
void prefetch(const AttentionJob& job, const std::byte* from) {
  const int64_t bytes = job.head_dim * element_bytes(job.dtype);
  for (int64_t at = 0; at < bytes; at += kCell) __builtin_prefetch(from + at);
}

void pack_queries(const Partition& p) {
  const AttentionJob& job = p.job;
  uint32_t* to = p.q;
  for (int64_t d = 0; d < job.padded_dim; ++d) {
    for (int64_t i = p.first_row; i < job.rows; ++i) {
      for (int64_t h = 0; h < job.heads; ++h) {
        uint32_t unit = 0;
        const float* q = job.q + i * job.q_stride + h * job.head_dim;
        if (d < job.head_dim) std::memcpy(&unit, q + d, 4);
        *to++ = unit;
      }
    }
  }
}

// Few queries take bf16 keys as they are; for more it pays to make them float32 first.
bool fused(const Partition& p) { return p.queries <= kFusedRows; }
int64_t panel_bytes(const Partition& p) {
  return p.job.padded_dim * 16 * (fused(p) ? element_bytes(cell_dtype(p.job.dtype)) : 4);
}

// Bytes [at, at + kCell) of what cells are made of, of each of `count` keys; zeros behind the end.
void key_lines(const AttentionJob& job, const std::byte* const* keys, int64_t count, int64_t at,
               std::byte (*lines)[kCell]) {
  const int64_t bytes = job.head_dim * element_bytes(job.dtype);
  const bool byte = is_byte(job.dtype);
  const int64_t from = byte ? at / 2 : at;
  const int64_t length = byte ? kCell / 2 : kCell;
  for (int64_t k = 0; k < count; ++k) {
    if (byte && from + length <= bytes) {
      float8_to_bf16(job.dtype, keys[k] + from, lines[k]);
      continue;
    }
    alignas(kCell) std::byte line[kCell] = {};
    std::memcpy(line, keys[k] + from, static_cast<size_t>(smaller(length, bytes - from)));
    if (byte) {
      float8_to_bf16(job.dtype, line, lines[k]);
    } else {
      std::memcpy(lines[k], line, kCell);
    }
  }
}

// Keys [first, first + count), count <= 16, as one panel: cells [padded_dim], lanes across keys.
void key_panel(const Partition& p, int64_t first, int64_t count, std::byte* out) {
  const AttentionJob& job = p.job;
  const DType dtype = cell_dtype(job.dtype);
  const int64_t bytes = job.head_dim * element_bytes(dtype);
  const std::byte* keys[16];
  for (int64_t k = 0; k < count; ++k) {
    keys[k] = job.keys + p.at[first + k];
    if (first + k + kAhead < p.longest) prefetch(job, job.keys + p.at[first + k + kAhead]);
  }
  alignas(64) std::byte lines[16][kCell];
  alignas(64) std::byte words[16 * kCell];
  const std::byte* padded[16];
  for (int64_t k = 0; k < 16; ++k) padded[k] = lines[k];
  for (int64_t at = 0; at < bytes; at += kCell) {
    // Taken as they are, words go straight to their place: the last may reach into the next panel,
    // which is written later.
    std::byte* to = fused(p) ? out : words;
    if (count == 16 && at + kCell <= bytes && dtype == job.dtype) {
      transpose_words(keys, at, to);
    } else {
      if (count < 16) std::memset(lines, 0, sizeof lines);
      key_lines(job, keys, count, at, lines);
      transpose_words(padded, 0, to);
    }
    const int64_t line_dims = kCell / element_bytes(dtype);
    const int64_t dims = smaller(line_dims, job.padded_dim - at / kCell * line_dims);
    if (!fused(p)) decode(dtype, false, words, dims, out);
    out += dims * (fused(p) ? 16 * element_bytes(dtype) : kCell);
  }
}

void score(const Partition& p) {
  const int64_t panel = panel_bytes(p);
  for (int64_t run = p.first; run < p.longest; run += kRun) {
    const int64_t count = smaller(kRun, p.longest - run);
    for (int64_t k = 0; k < count; k += 16) {
      key_panel(p, run + k, smaller(16, count - k), p.cells + k / 16 * panel);
    }
    Product product;
    product.x = p.q;
    product.x_stride = p.queries;
    product.rows = p.queries;
    product.dtype = fused(p) ? cell_dtype(p.job.dtype) : DType::f32;
    product.w = p.cells;
    product.panel_stride = panel;
    product.panels = (count + 15) / 16;
    product.steps = p.job.padded_dim;
    product.y = p.scores + run;
    product.y_stride = kScoreStride;
    multiply(product);
  }
}

// Everything that makes scores more than the products of queries and keys.
void change_scores(const Partition& p) {
  const AttentionJob& job = p.job;
  float key_scales[kScoreStride];
  if (is_byte(job.dtype)) p.copy_scales(job.key_scales, job.key_scale, key_scales);
  for (int64_t query = 0; query < p.queries; ++query) {
    const int64_t i = p.first_row + query / job.heads, head = query % job.heads;
    ScoreRow row;
    row.scores = p.scores + query * kScoreStride;
    if (is_byte(job.dtype)) row.key_scales = key_scales;
    row.begin = p.begin;
    row.unseen = p.unseen(i);
    row.count = p.count(i);
    row.position = job.first_position + i;
    if (job.alibi_slopes != nullptr) row.alibi_slope = job.alibi_slopes[head];
    change_scores(job, row);
  }
}

// Products to weights p = exp(scale * product - largest), and their sum.
void softmax(const Partition& p, float scale, AttentionSums out) {
  const AttentionJob& job = p.job;
  for (int64_t query = 0; query < p.queries; ++query) {
    const int64_t count = p.count(p.first_row + query / job.heads);
    if (p.unseen(p.first_row + query / job.heads) == count) continue;
    float* scores = p.scores + query * kScoreStride;
    Vf largest = splat(kMinusInfinity);
    for (int64_t k = 0; k < count; k += kLanes) {
      Vf s = load(scores + k) * scale;
      if (k + kLanes > count) {
        store(scores + k, s);
        s = load_some(scores + k, count - k, kMinusInfinity);
      }
      store(scores + k, s);
      largest = max(largest, s);
    }
    const float top = max(largest);
    Vf total{};
    for (int64_t k = 0; k < count; k += kLanes) {
      const Vf weight = exp(load(scores + k) - top);
      store(scores + k, weight);
      total += weight;
    }
    const int64_t slot = p.first_row * job.heads + query;
    out.largest[slot] = top;
    out.total[slot] = sum(total);
  }
}

// FP8 values are their codes times scales, which the weights take on.
void scale_weights(const Partition& p) {
  float scales[kScoreStride];
  p.copy_scales(p.job.value_scales, p.job.value_scale, scales);
  for (int64_t query = 0; query < p.queries; ++query) {
    float* weights = p.scores + query * kScoreStride;
    for (int64_t k = p.first / kLanes * kLanes; k < p.longest; k += kLanes) {
      store(weights + k, load(weights + k) * load(scales + k));
    }
  }
}

// The weights as units of the next product: [kPartition][queries].
void pack_weights(const Partition& p) {
  alignas(64) uint32_t words[16][16];
  const std::byte* rows[16];
  for (int64_t query = 0; query < p.queries; query += 16) {
    const int64_t count = smaller(16, p.queries - query);
    for (int64_t r = 0; r < 16; ++r) {  // past the last query: some row, whose words are not used
      const int64_t row = query + (r < count ? r : 0);
      rows[r] = reinterpret_cast<const std::byte*>(p.scores + row * kScoreStride);
    }
    for (int64_t k = 0; k < p.longest; k += 16) {
      transpose_words(rows, k * 4, reinterpret_cast<std::byte*>(words));
      for (int64_t i = 0; i < smaller(16, p.longest - k); ++i) {
        copy_words(p.weights + (k + i) * p.queries + query, words[i], count);
      }
    }
  }
}

template <DType kDtype>
Vf load_value(const std::byte* from) {
  if constexpr (kDtype == DType::bf16) return load_bf16(from);
  if constexpr (kDtype == DType::f8_e4m3 || kDtype == DType::f8_e5m2)
    return load_float8<kDtype>(from);
  return load(from);
}

// 16 elements as a cell.
template <DType kDtype>
void widen(const std::byte* from, int64_t bytes, std::byte* to) {
  for (int64_t i = 0; i < 16; i += kLanes) store(to + i * 4, load_value<kDtype>(from + i * bytes));
}

// Values [first, first + count) as cells [padded_dim / 16][kRun].
template <DType kDtype>
void value_cells_of(const Partition& p, int64_t first, int64_t count) {
  const AttentionJob& job = p.job;
  const int64_t bytes = element_bytes(job.dtype);
  for (int64_t k = 0; k < count; ++k) {
    const std::byte* from = job.values + p.at[first + k];
    std::byte* to = p.cells + k * kCell;
    if (first + k + kAhead < p.longest) prefetch(job, job.values + p.at[first + k + kAhead]);
    int64_t d = 0;
    for (; d + 16 <= job.head_dim; d += 16) {
      widen<kDtype>(from + d * bytes, bytes, to);
      to += kRun * kCell;
    }
    if (d < job.head_dim) {
      std::byte padded[kCell] = {};
      std::memcpy(padded, from + d * bytes, static_cast<size_t>((job.head_dim - d) * bytes));
      widen<kDtype>(padded, bytes, to);
    }
  }
}

void value_cells(const Partition& p, int64_t first, int64_t count) {
  switch (p.job.dtype) {
    case DType::bf16:
      return value_cells_of<DType::bf16>(p, first, count);
    case DType::f8_e4m3:
      return value_cells_of<DType::f8_e4m3>(p, first, count);
    case DType::f8_e5m2:
      return value_cells_of<DType::f8_e5m2>(p, first, count);
    default:
      return value_cells_of<DType::f32>(p, first, count);
  }
}

// values[queries] (+)= weights x value cells of positions [begin, end) of the run at `run`.
void add_values(const Partition& p, int64_t run, int64_t begin, int64_t end, int64_t query,
                int64_t queries, float* values) {
  if (begin >= end) return;
  Product product;
  product.x = p.weights + begin * p.queries + query;
  product.x_stride = p.queries;
  product.rows = queries;
  product.w = p.cells + (begin - run) * kCell;
  product.panel_stride = kRun * kCell;
  product.panels = p.job.padded_dim / 16;
  product.steps = end - begin;
  product.y = values + query * p.job.padded_dim;
  product.y_stride = p.job.padded_dim;
  product.resume = begin > 0;  // with a window, too, that begins here: from zeros
  multiply(product);
}

// Rows [row, row + rows) of the active ones: together over the positions that all of them attend
// to, each alone before and after these, so that none touches what it may not see.
void weigh_run(const Partition& p, int64_t run, int64_t row, int64_t rows, float* values) {
  const int64_t heads = p.job.heads;
  const int64_t end = smaller(run + kRun, p.longest);
  const int64_t first = p.first_row + row, last = first + rows - 1;
  const int64_t low = smaller(larger(p.unseen(last), run), end);
  const int64_t high = larger(smaller(p.count(first), end), low);
  for (int64_t i = row; i < row + rows - 1; ++i) {
    const int64_t begin = larger(p.unseen(p.first_row + i), run);
    add_values(p, run, begin, smaller(low, p.count(p.first_row + i)), i * heads, heads, values);
  }
  add_values(p, run, low, high, row * heads, rows * heads, values);
  for (int64_t i = row; i < row + rows; ++i) {
    add_values(p, run, high, smaller(p.count(p.first_row + i), end), i * heads, heads, values);
  }
}

void weigh_values(const Partition& p, float* values) {
  const int64_t active = p.job.rows - p.first_row;
  const int64_t together = kTileRows / p.job.heads > 0 ? kTileRows / p.job.heads : 1;
  if (p.job.window > 0) {
    std::memset(values, 0, static_cast<size_t>(p.queries * p.job.padded_dim) * sizeof(float));
  }
  for (int64_t run = p.first; run < p.longest; run += kRun) {
    value_cells(p, run, smaller(kRun, p.longest - run));
    for (int64_t row = 0; row < active; row += together) {
      weigh_run(p, run, row, smaller(together, active - row), values);
    }
  }
}

// A logit more in a softmax whose largest score was `largest`; values are to be multiplied by
// `keep`.
void add_sink(float sink, float largest, float& sum, float& keep) {
  const float top = sink > largest ? sink : largest;
  keep = exp(splat(largest - top))[0];
  sum = sum * keep + exp(splat(sink - top))[0];
}

}  // namespace

void attend(const AttentionJob& job, int64_t partition, float* scratch, AttentionSums out) {
  for (int64_t query = 0; query < job.rows * job.heads; ++query) out.total[query] = 0;
  const Partition p(job, partition, scratch);
  if (p.queries == 0) return;
  pack_queries(p);
  score(p);
  const bool changed = changes_scores(job);
  if (changed) change_scores(p);
  softmax(p, changed ? 1 : job.scale, out);
  if (is_byte(job.dtype)) scale_weights(p);
  pack_weights(p);
  weigh_values(p, out.values + p.first_row * job.heads * p.job.padded_dim);
}

void merge(const AttentionJob& job, AttentionSums total, AttentionSums part) {
  for (int64_t query = 0; query < job.rows * job.heads; ++query) {
    if (part.total[query] == 0) continue;  // no position of this partition
    float* values = total.values + query * job.padded_dim;
    const float* more = part.values + query * job.padded_dim;
    const bool first = total.total[query] == 0;
    const float old = total.largest[query], now = part.largest[query];
    const float top = first || now > old ? now : old;
    const Vf keep = first ? Vf{} : exp(splat(old - top));
    const Vf take = exp(splat(now - top));
    total.largest[query] = top;
    total.total[query] =
        first ? part.total[query] : total.total[query] * keep[0] + part.total[query] * take[0];
    for (int64_t d = 0; d < job.padded_dim; d += kLanes) {
      const Vf sum = first ? load(more + d) : load(values + d) * keep + load(more + d) * take;
      store(values + d, sum);
    }
  }
}

void finish(const AttentionJob& job, AttentionSums total, float* out, int64_t out_stride) {
  for (int64_t i = 0; i < job.rows; ++i) {
    for (int64_t h = 0; h < job.heads; ++h) {
      const int64_t query = i * job.heads + h;
      float* to = out + i * out_stride + h * job.head_dim;
      float sum = total.total[query], keep = 1;
      if (job.sinks != nullptr) add_sink(job.sinks[h], total.largest[query], sum, keep);
      for (int64_t d = 0; d < job.head_dim; d += kLanes) {
        const Vf value = load(total.values + query * job.padded_dim + d) * keep / sum;
        store_some(to + d, value, smaller(kLanes, job.head_dim - d));
      }
    }
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
