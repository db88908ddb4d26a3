#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "kernels/launch_checks.h"
#include "kernels/reference/reference.h"
#include "quant/float8.h"

namespace sluice {
namespace {

double decode(const std::byte* from, DType dtype) {
  if (dtype == DType::f32) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  if (dtype == DType::bf16) {
    uint16_t code;
    std::memcpy(&code, from, sizeof code);
    return bf16_to_float(code);
  }
  auto code = std::to_integer<uint8_t>(*from);
  return dtype == DType::f8_e4m3 ? e4m3_to_float(code) : e5m2_to_float(code);
}

// One head of one row: its query, and what it attends to.
struct Query {
  const float* q;
  bool rounded;  // queries and weights, to bf16
  const KvCache& cache;
  const SequenceChunk& chunk;
  const AttentionParams& params;
  int64_t head;
  int64_t kv_head;
  int64_t position;
  const int32_t* chosen = nullptr;  // what it attends to; null: the positions up to its own
};

// A position's key or value in the cache, and its scale.
struct Stored {
  const std::byte* at;
  double scale;
};
// `row`: elements from one token's to the next.
Stored stored(const Query& query, const std::byte* base, int64_t row, float scale,
              int64_t position) {
  const KvCache& c = query.cache;
  const int64_t token = position % c.block_size;
  const std::byte* block =
      base + query.chunk.block_table[static_cast<size_t>(position / c.block_size)] * c.block_stride;
  if (kv_stores_scales(c)) {
    std::memcpy(&scale, block + kv_scale_offset(c, row, query.kv_head, token), sizeof scale);
  } else if (!is_float8(c.dtype)) {
    scale = 1;
  }
  return {block + kv_element_offset(c, row, query.kv_head, token), scale};
}
double element(const Query& query, const Stored& s, int64_t d) {
  return decode(s.at + d * dtype_bytes(query.cache.dtype), query.cache.dtype);
}

double rounded(const Query& query, double x) {
  const auto single = static_cast<float>(x);
  return query.rounded ? bf16_to_float(float_to_bf16(single)) : x;
}

double score(const Query& query, int64_t position) {
  const AttentionParams& p = query.params;
  const KvCache& c = query.cache;
  const Stored key = stored(query, c.keys, c.key_dim, c.key_scale, position);
  double dot = 0;
  for (int64_t d = 0; d < c.key_dim; ++d) {
    dot += rounded(query, query.q[d]) * element(query, key, d);
  }
  double s = dot * key.scale * p.scale;
  if (p.soft_cap > 0) s = p.soft_cap * std::tanh(s / p.soft_cap);
  if (!p.alibi_slopes.empty()) {
    s += static_cast<double>(p.alibi_slopes[static_cast<size_t>(query.head)]) *
         static_cast<double>(position - query.position);
  }
  return s;
}

constexpr int64_t kPartition = 512;  // positions

struct Sums {
  double largest = -std::numeric_limits<double>::infinity();
  double total = 0;
};

int64_t attended(const Query& query, int64_t i) {
  return query.chosen != nullptr ? query.chosen[i] : i;
}

// Positions [begin, end), or those chosen so, of one partition, into the sums of p and, in out, of
// p v.
void attend_partition(const Query& query, int64_t begin, int64_t end, Sums& sums, float* out) {
  std::array<double, kPartition> p{};
  const int64_t count = end - begin;
  double top = -std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < count; ++i) {
    p[static_cast<size_t>(i)] = score(query, attended(query, begin + i));
    top = std::max(top, p[static_cast<size_t>(i)]);
  }
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    p[static_cast<size_t>(i)] = std::exp(p[static_cast<size_t>(i)] - top);
    sum += p[static_cast<size_t>(i)];
  }
  const double largest = std::max(sums.largest, top);
  const double keep = std::exp(sums.largest - largest), take = std::exp(top - largest);
  const KvCache& c = query.cache;
  std::vector<double> partial(static_cast<size_t>(c.value_dim));
  for (int64_t i = 0; i < count; ++i) {
    const Stored value =
        stored(query, c.values, kv_value_row(c), c.value_scale, attended(query, begin + i));
    const double weight = rounded(query, p[static_cast<size_t>(i)] * value.scale);
    for (int64_t d = 0; d < query.cache.value_dim; ++d) {
      partial[static_cast<size_t>(d)] += weight * element(query, value, d);
    }
  }
  for (int64_t d = 0; d < query.cache.value_dim; ++d) {
    out[d] = static_cast<float>(out[d] * keep + partial[static_cast<size_t>(d)] * take);
  }
  sums = {largest, sums.total * keep + sum * take};
}

// Adds what the query attends to of one cache, one partition after the other.
void attend_cache(const Query& query, const ChosenPositions& chosen, Sums& sums, float* out) {
  const int64_t seen = kv_entries(query.cache.tokens, query.position);
  const int64_t end = query.chosen != nullptr ? std::min(chosen.most, seen) : seen;
  int64_t begin = query.cache.tokens == 1 ? first_attended(query.params, query.position) : 0;
  while (begin < end) {
    const int64_t border = std::min(end, (begin / kPartition + 1) * kPartition);
    attend_partition(query, begin, border, sums, out);
    begin = border;
  }
}

// out = softmax(scores) V over the positions that the query attends to. `more`: entries of another
// cache, or null.
void attend(const Query& query, const Query* more, float* out) {
  const AttentionParams& params = query.params;
  Sums sums;
  std::fill_n(out, query.cache.value_dim, 0.0f);
  attend_cache(query, params.chosen, sums, out);
  if (more != nullptr) attend_cache(*more, params.more->chosen, sums, out);
  double keep = 1;
  if (!params.sinks.empty()) {
    const double sink = params.sinks[static_cast<size_t>(query.head)];
    const double largest = std::max(sums.largest, sink);
    keep = std::exp(sums.largest - largest);
    sums.total = sums.total * keep + std::exp(sink - largest);
  }
  for (int64_t d = 0; d < query.cache.value_dim; ++d) {
    out[d] = static_cast<float>(out[d] * keep / sums.total);
  }
}

// A row's scores by the indexer's keys, for the positions, or entries, up to its own.
std::vector<double> index_scores(const Query& row, Tensor weights, int64_t heads) {
  std::vector<double> scores(static_cast<size_t>(kv_entries(row.cache.tokens, row.position)));
  for (int64_t h = 0; h < heads; ++h) {
    Query query = row;
    query.q += h * row.cache.key_dim;
    const double weight = weights.row<float>(0)[h];
    for (size_t p = 0; p < scores.size(); ++p)
      scores[p] += weight * std::max(0.0, score(query, static_cast<int64_t>(p)));
  }
  return scores;
}

// The same query of the other cache that a row attends to, where there is one.
std::optional<Query> more_of(const Query& query, int64_t chunk, int64_t row) {
  const MoreKeys* more = query.params.more;
  if (more == nullptr) return std::nullopt;
  const SequenceChunk& other = more->rows->chunks[static_cast<size_t>(chunk)];
  const ChosenPositions& all = more->chosen;
  const int32_t* chosen =
      all.most > 0 ? all.positions + (other.first_row + row) * all.most : nullptr;
  return Query{query.q,    query.rounded, more->cache,    other, query.params,
               query.head, query.kv_head, query.position, chosen};
}

}  // namespace

void ReferenceKernels::choose_positions(Tensor q, Tensor weights, const KvCache& keys,
                                        const KvRows& rows, const ChosenPositions& out) const {
  check_choose_positions(q, weights, keys, rows.chunks, out);
  const bool round = compute_ == Compute::bf16 && keys.dtype != DType::f32;
  for (const SequenceChunk& chunk : rows.chunks) {
    for (int64_t i = 0; i < chunk.rows; ++i) {
      const int64_t row = chunk.first_row + i, position = chunk.first_position + i;
      const std::vector<double> scores =
          index_scores({q.row<float>(row), round, keys, chunk, {}, 0, 0, position},
                       weights.rows_from(row, 1), weights.cols);
      std::vector<int32_t> all(scores.size());
      std::iota(all.begin(), all.end(), 0);
      std::ranges::stable_sort(
          all, [&](int32_t a, int32_t b) { return scores[size_t(a)] > scores[size_t(b)]; });
      all.resize(std::min(static_cast<size_t>(out.most), scores.size()));
      std::ranges::sort(all);
      std::ranges::copy(all, out.positions + row * out.most);
    }
  }
}

void ReferenceKernels::paged_attention(Tensor q, const KvCache& cache, const KvRows& rows,
                                       const AttentionParams& params, Tensor out) const {
  check_paged_attention(q, cache, rows.chunks, params, out);
  const int64_t heads = q.cols / cache.key_dim;
  const bool round = compute_ == Compute::bf16 && cache.dtype != DType::f32;
  for (const SequenceChunk& chunk : rows.chunks) {
    for (int64_t i = 0; i < chunk.rows; ++i) {
      const ChosenPositions& all = params.chosen;
      const int32_t* chosen =
          all.most > 0 ? all.positions + (chunk.first_row + i) * all.most : nullptr;
      for (int64_t h = 0; h < heads; ++h) {
        const Query query{q.row<float>(chunk.first_row + i) + h * cache.key_dim,
                          round,
                          cache,
                          chunk,
                          params,
                          h,
                          h / (heads / cache.kv_heads),
                          chunk.first_position + i,
                          chosen};
        const std::optional<Query> more = more_of(query, &chunk - rows.chunks.data(), i);
        attend(query, more ? &*more : nullptr,
               out.row<float>(chunk.first_row + i) + h * cache.value_dim);
      }
    }
  }
}

}  // namespace sluice
