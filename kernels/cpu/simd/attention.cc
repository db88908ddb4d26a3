// Attention over one partition of the positions: scores = q K^T and the weighted sum of values are
// the same tiled product as linear layers, with 16 keys, or 16 elements of the values, in the role
// of a panel's output channels. A query's sums depend on nothing but its own positions.
#include "kernels/cpu/simd/attention_partition.h"
#include "kernels/cpu/simd/float8.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int64_t kCell = 64;
constexpr float kMinusInfinity = -__builtin_inff();

// What keys become cells of: bf16 has all values of both FP8 types.
DType cell_dtype(DType dtype) { return is_byte(dtype) ? DType::bf16 : dtype; }

// Whether scores are more than scale * q k.
bool changes_scores(const AttentionJob& job) {
  return is_byte(job.dtype) || job.window > 0 || job.soft_cap > 0 || job.alibi_slopes != nullptr;
}

// Elements [d, d + 16) of a query as its units.
void query_words(const AttentionJob& job, const float* q, int64_t d, uint32_t (&words)[16]) {
  float x[16] = {};
  std::memcpy(x, q + d, static_cast<size_t>(smaller(16, larger(job.head_dim - d, 0))) * 4);
  if (in_pairs(job)) return to_bf16(x, 16, reinterpret_cast<std::byte*>(words));
  for (int64_t i = 0; i < 16; i += kLanes) {
    const Vu word = job.units == Units::f32 ? as_bits(load(x + i)) : round_to_bf16(load(x + i));
    store(words + i, word);
  }
}

void pack_queries(const Partition& p) {
  const AttentionJob& job = p.job;
  const int64_t count = in_pairs(job) ? 8 : 16;
  uint32_t words[16];
  uint32_t* to = p.q;
  for (int64_t d = 0; d < job.padded_dim; d += 16, to += count * p.queries) {
    for (int64_t query = 0; query < p.queries; ++query) {
      const int64_t row = p.first_row + query / job.heads, head = query % job.heads;
      query_words(job, job.q + row * job.q_stride + head * job.head_dim, d, words);
      for (int64_t i = 0; i < count; ++i) to[i * p.queries + query] = words[i];
    }
  }
}

// Keys become cells as they are where pairs are multiplied, or where queries are few: for more it
// pays to make them float32 first.
bool fused(const Partition& p) { return in_pairs(p.job) || p.queries <= kFusedRows; }
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

#if defined(__AVX512BF16__)

// FP8 keys as a panel of pairs: codes are transposed as they are, four in a word, and decoded then.
void key_pairs(const AttentionJob& job, const std::byte* const* keys, int64_t count,
               std::byte* out) {
  // Of the four keys in 16 bytes, pairs (0, 1) before their pairs (2, 3): as cells of codes have
  // them.
  const __m512i order =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
  alignas(64) std::byte lines[16][kCell];
  alignas(64) std::byte words[16 * kCell];
  const std::byte* padded[16];
  for (int64_t k = 0; k < 16; ++k) padded[k] = lines[k];
  for (int64_t at = 0; at < job.padded_dim; at += kCell) {
    if (count == 16 && at + kCell <= job.head_dim) {
      transpose_words(keys, at, words);
    } else {
      std::memset(lines, 0, sizeof lines);
      const auto length = static_cast<size_t>(smaller(kCell, job.head_dim - at));
      for (int64_t k = 0; k < count; ++k) std::memcpy(lines[k], keys[k] + at, length);
      transpose_words(padded, 0, words);
    }
    const int64_t dims = smaller(kCell, job.padded_dim - at);
    for (std::byte* cell = words; cell < words + dims / 4 * kCell; cell += kCell)
      _mm512_store_si512(cell, _mm512_shuffle_epi8(_mm512_load_si512(cell), order));
    decode(job.dtype, words, dims / 4, out);
    out += dims / 2 * kCell;
  }
}

#endif

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
#if defined(__AVX512BF16__)
  if (in_pairs(job) && is_byte(job.dtype)) return key_pairs(job, keys, count, out);
#endif
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
    if (!fused(p)) decode(dtype, words, dims * 16 * element_bytes(dtype) / kCell, out);
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
    product.pairs = in_pairs(p.job);
    product.w = p.cells;
    product.panel_stride = panel;
    product.panels = (count + 15) / 16;
    product.steps = in_pairs(p.job) ? p.job.padded_dim / 2 : p.job.padded_dim;
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

void round_weights(const Partition& p) {
  for (int64_t query = 0; query < p.queries; ++query) {
    float* weights = p.scores + query * kScoreStride;
    if (in_pairs(p.job)) {
      to_bf16(weights, (p.longest + 1) / 2 * 2, reinterpret_cast<std::byte*>(weights));
      continue;
    }
    for (int64_t k = 0; k < p.longest; k += kLanes)
      store(weights + k, round_to_bf16(load(weights + k)));
  }
}

// The weights as units of the next product: [units][queries].
void pack_weights(const Partition& p) {
  const int64_t units = in_pairs(p.job) ? (p.longest + 1) / 2 : p.longest;
  alignas(64) uint32_t words[16][16];
  const std::byte* rows[16];
  for (int64_t query = 0; query < p.queries; query += 16) {
    const int64_t count = smaller(16, p.queries - query);
    for (int64_t r = 0; r < 16; ++r) {  // past the last query: some row, whose words are not used
      const int64_t row = query + (r < count ? r : 0);
      rows[r] = reinterpret_cast<const std::byte*>(p.scores + row * kScoreStride);
    }
    for (int64_t k = 0; k < units; k += 16) {
      transpose_words(rows, k * 4, reinterpret_cast<std::byte*>(words));
      for (int64_t i = 0; i < smaller(16, units - k); ++i) {
        copy_words(p.weights + (k + i) * p.queries + query, words[i], count);
      }
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
  if (job.units != Units::f32) round_weights(p);
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
