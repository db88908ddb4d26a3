// Attention over one partition of the positions: scores = q K^T and the weighted sum of values are
// the same tiled product as linear layers, with 16 keys, or 16 elements of the values, in the role
// of a panel's output channels. A query's sums depend on nothing but its own positions.
#include "kernels/cpu/simd/attention_partition.h"
#include "kernels/cpu/simd/float8.h"

namespace sluice::cpu::SLUICE_ISA {
namespace {

constexpr int64_t kCell = 64;
constexpr float kMinusInfinity = -__builtin_inff();

// Returns whether a score is more than scale * q k.
bool changes_scores(const AttentionJob& job) {
  return is_byte(job.dtype) || job.window > 0 || job.chunk > 0 || job.soft_cap > 0 ||
         job.alibi_slopes != nullptr;
}

// Elements [d, d + 16) of a query as its units.
void query_words(const AttentionJob& job, const float* q, int64_t d, uint32_t (&words)[16]) {
  float x[16] = {};
  std::memcpy(x, q + d, static_cast<size_t>(smaller(16, larger(job.key_dim - d, 0))) * 4);
  if (in_pairs(job)) return to_bf16(x, 16, reinterpret_cast<std::byte*>(words));
  const float factor = is_byte(job.dtype) ? kXFactor : 1;
  for (int64_t i = 0; i < 16; i += kLanes) {
    const Vf v = load(x + i);
    store(words + i, (job.units == Units::f32 ? v : as_floats(round_to_bf16(v))) * factor);
  }
}

void pack_queries(const Partition& p) {
  const AttentionJob& job = p.job;
  const int64_t count = in_pairs(job) ? 8 : 16;
  uint32_t words[16];
  uint32_t* to = p.q;
  for (int64_t d = 0; d < job.padded_keys; d += 16, to += count * p.queries) {
    for (int64_t query = 0; query < p.queries; ++query) {
      const int64_t row = p.first_row + query / job.heads, head = query % job.heads;
      query_words(job, job.q + row * job.q_stride + head * job.key_dim, d, words);
      for (int64_t i = 0; i < count; ++i) to[i * p.queries + query] = words[i];
    }
  }
}

// Type of the keys that the product takes.
DType key_cells(const Partition& p) {
  const DType stored = p.job.dtype;
  if (in_pairs(p.job)) return DType::bf16;
  if (take_stored(p) || stored == DType::f32) return stored;
  return kFreeShifts ? DType::bf16 : DType::f32;
}

// Cells as keys are stored into those that the product takes; returns their end.
std::byte* decode_keys(DType stored, DType taken, const std::byte* cells, int64_t count,
                       std::byte* out) {
  if (is_byte(stored) && taken == DType::f32) {
    alignas(kCell) std::byte pairs[2 * 16 * kCell];
    decode(stored, cells, count, pairs);
    return decode_keys(DType::bf16, taken, pairs, 2 * count, out);
  }
  if (stored == taken) return out + count * kCell;  // there already
  decode(stored, cells, count, out);
  return out + 2 * count * kCell;
}

}  // namespace

void Partition::locate() {
  const int64_t key = job.key_dim * element_bytes(job.dtype);
  const int64_t value = job.value_row * element_bytes(job.dtype);
  if (key != value) value_at = value_places;
  each_block([&](int64_t k, int64_t count, int64_t base, int64_t offset) {
    for (int64_t i = 0; i < count; ++i) key_at[k + i] = base + (offset + i) * key;
    if (key == value) return;
    for (int64_t i = 0; i < count; ++i) value_places[k + i] = base + (offset + i) * value;
  });
}

std::byte* key_panel(const Partition& p, int64_t first, int64_t count, std::byte* out) {
  const AttentionJob& job = p.job;
  const DType taken = key_cells(p);
  const int64_t element = element_bytes(job.dtype);
  const std::byte* keys[16];
  for (int64_t k = 0; k < count; ++k) {
    keys[k] = job.keys + p.key_at[first + k];
  }
  const std::byte* later[16];
  for (int64_t k = 0; k < 16; ++k) {
    later[k] = job.keys + p.key_at[smaller(first + k + kAhead, p.longest - 1)];
  }
  alignas(kCell) std::byte lines[16][kCell];
  alignas(kCell) std::byte words[16 * kCell];
  const std::byte* padded[16];
  for (int64_t k = 0; k < 16; ++k) padded[k] = lines[k];
  const int64_t bytes = job.key_dim * element, padded_bytes = job.padded_keys * element;
  for (int64_t at = 0; at < bytes; at += kCell) {
    // Taken as they are, words go straight to their place: the last may reach into the next panel,
    // which is written later.
    std::byte* cells = job.dtype == taken ? out : words;
    for (const std::byte* key : later) __builtin_prefetch(key + at, 0, 2);
    if (count == 16 && at + kCell <= bytes) {
      transpose_words(keys, at, cells);
    } else {
      std::memset(lines, 0, sizeof lines);
      const auto length = static_cast<size_t>(smaller(kCell, bytes - at));
      for (int64_t k = 0; k < count; ++k) std::memcpy(lines[k], keys[k] + at, length);
      transpose_words(padded, 0, cells);
    }
    const int64_t whole = smaller(kCell, padded_bytes - at) / 4;  // a word of 16 keys is a cell
    if (is_byte(job.dtype)) interleave_codes(cells, whole * kCell);
    out = decode_keys(job.dtype, taken, cells, whole, out);
  }
  return out;
}

namespace {

void score(const Partition& p) {
  for (int64_t run = p.first; run < p.longest; run += kRun) {
    const int64_t count = smaller(kRun, p.longest - run);
    std::byte* end = p.cells;
    for (int64_t k = 0; k < count; k += 16) {
      end = key_panel(p, run + k, smaller(16, count - k), end);
    }
    Product product;
    product.x = p.q;
    product.x_stride = p.queries;
    product.rows = p.queries;
    product.dtype = key_cells(p);
    product.pairs = in_pairs(p.job);
    product.w = p.cells;
    product.panels = (count + 15) / 16;
    product.panel_stride = (end - p.cells) / product.panels;
    product.steps = in_pairs(p.job) ? p.job.padded_keys / 2 : p.job.padded_keys;
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

void weigh_scores(const Partition& p, AttentionSums out) {
  const bool changed = changes_scores(p.job);
  if (changed) change_scores(p);
  softmax(p, changed ? 1 : p.job.scale, out);
  if (is_byte(p.job.dtype)) scale_weights(p);
  if (p.job.units != Units::f32) round_weights(p);
}

void attend(const AttentionJob& job, int64_t partition, float* scratch, AttentionSums out) {
  for (int64_t query = 0; query < job.rows * job.heads; ++query) out.total[query] = 0;
  const Partition p(job, partition, scratch);
  if (p.queries == 0) return;
  pack_queries(p);
  score(p);
  weigh_scores(p, out);
  pack_weights(p);
  weigh_values(p, out.values + p.first_row * job.heads * p.job.padded_values);
}

void index_scores(const AttentionJob& job, const float* weights, int64_t partition, float* scratch,
                  float* scores) {
  const Partition p(job, partition, scratch);
  if (p.queries == 0) return;
  pack_queries(p);
  score(p);
  if (changes_scores(job)) change_scores(p);
  const int64_t count = p.count(0);
  for (int64_t head = 0; head < job.heads; ++head) {
    const float* products = p.scores + head * kScoreStride;
    for (int64_t k = 0; k < count; k += kLanes)
      store(scores + k, load(scores + k) + weights[head] * max(load(products + k), Vf{}));
  }
}

void merge(const AttentionJob& job, AttentionSums total, AttentionSums part) {
  for (int64_t query = 0; query < job.rows * job.heads; ++query) {
    if (part.total[query] == 0) continue;  // no position of this partition
    float* values = total.values + query * job.padded_values;
    const float* more = part.values + query * job.padded_values;
    const bool first = total.total[query] == 0;
    const float old = total.largest[query], now = part.largest[query];
    const float top = first || now > old ? now : old;
    const Vf keep = first ? Vf{} : exp(splat(old - top));
    const Vf take = exp(splat(now - top));
    total.largest[query] = top;
    total.total[query] =
        first ? part.total[query] : total.total[query] * keep[0] + part.total[query] * take[0];
    for (int64_t d = 0; d < job.padded_values; d += kLanes) {
      const Vf sum = first ? load(more + d) : load(values + d) * keep + load(more + d) * take;
      store(values + d, sum);
    }
  }
}

void finish(const AttentionJob& job, AttentionSums total, float* out, int64_t out_stride) {
  for (int64_t i = 0; i < job.rows; ++i) {
    for (int64_t h = 0; h < job.heads; ++h) {
      const int64_t query = i * job.heads + h;
      float* to = out + i * out_stride + h * job.value_dim;
      float sum = total.total[query], keep = 1;
      if (job.sinks != nullptr) add_sink(job.sinks[h], total.largest[query], sum, keep);
      for (int64_t d = 0; d < job.value_dim; d += kLanes) {
        const Vf value = load(total.values + query * job.padded_values + d) * keep / sum;
        store_some(to + d, value, smaller(kLanes, job.value_dim - d));
      }
    }
  }
}

}  // namespace sluice::cpu::SLUICE_ISA
