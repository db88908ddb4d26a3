#include "kernels/launch_checks.h"

#include <algorithm>

#include "quant/groups.h"

namespace sluice {
namespace {

void check_activations(const Tensor& x) {
  check(x.data != nullptr || x.rows == 0, "activations have storage");
  check(x.dtype == DType::f32, "activations are float32");
  check(x.rows >= 0 && x.cols >= 0 && x.stride >= x.cols, "activations have a shape");
}

void check_weight(const Weight& w) {
  check(w.data != nullptr, "weight is resident");
  check(w.plane(Plane::scales) != nullptr || w.format.scales == ScaleKind::none,
        "scales are resident");
  // The kernels scale the sums of so many columns.
  if (w.format.scales == ScaleKind::grouped) {
    const int64_t wide = w.format.scale_cols;
    check(w.group_scales != nullptr && (!has_zeros(w.format) || w.zeros != nullptr),
          "groups are resident");
    check((w.format.outer == Outer::none) == (w.outers == nullptr), "outer scales are resident");
    check(wide > 0 && (wide % kRunCols == 0 || (wide % 8 == 0 && kRunCols % wide == 0)),
          "groups of whole runs, or whole parts of 8 columns");
    check(!w.format.ordered || w.order != nullptr, "the order of columns is resident");
    return;
  }
  check(w.format.scale_cols == kScaleBlock, "blocks of 128 columns");
}

void check_cache(const KvCache& cache) {
  check(cache.keys != nullptr && cache.values != nullptr, "cache has storage");
  check(cache.dtype == DType::bf16 || cache.dtype == DType::f32 || is_float8(cache.dtype),
        "cache holds bf16, f32, f8_e4m3 or f8_e5m2");
  check(cache.key_scale >= 0 && (cache.key_scale > 0) == (cache.value_scale > 0) &&
            (cache.key_scale == 0 || is_float8(cache.dtype)),
        "cache has scales of its own for keys and values, if it is FP8, or none");
  check(cache.block_size > 0 && cache.kv_heads > 0 && cache.key_dim > 0 && cache.value_dim > 0 &&
            cache.tokens > 0,
        "cache has a shape");
  check(cache.key_dim % 2 == 0 && cache.value_dim % 2 == 0, "keys and values of even widths");
  check(cache.block_stride >= std::max(kv_key_bytes(cache), kv_value_bytes(cache)),
        "blocks lie apart");
  check(!cache.latent || (cache.values == cache.keys && cache.value_dim <= cache.key_dim &&
                          cache.value_scale == cache.key_scale),
        "latent values are the beginnings of their keys");
}

void check_state(const StateRows& state, int64_t rows) {
  const StateCache& c = state.cache;
  check(c.pages != nullptr && c.rows > 0 && c.cols > 0, "a state has storage and a shape");
  check(c.page_rows > 0 && c.first_row >= 0 && c.first_row < c.page_rows &&
            c.page_rows * c.cols * static_cast<int64_t>(sizeof(float)) <= c.page_bytes,
        "a page has whole rows of a state");
  check(std::ssize(state.groups) == state_pages(c), "a group for each page of a state");
  for (const KvRows& group : state.groups) {
    check(group.chunks.size() == state.groups.front().chunks.size(), "each group has all chunks");
    int64_t next = 0;
    for (const SequenceChunk& chunk : group.chunks) {
      check(chunk.first_row == next && chunk.rows > 0, "chunks cover the rows in order");
      next += chunk.rows;
      check(chunk.block_table.size() == 1 && chunk.block_table[0] >= 0 &&
                chunk.block_table[0] < c.blocks,
            "a sequence has one block of a state's group");
    }
    check(next == rows, "chunks cover the rows");
  }
}

}  // namespace

void check_embed(const Weight& table, std::span<const int32_t> ids, const Tensor& out) {
  check_weight(table);
  check_activations(out);
  check(out.rows == static_cast<int64_t>(ids.size()) && out.cols == table.cols,
        "embed: one row of the table for each id");
  for (int32_t id : ids) check(id >= 0 && id < table.rows, "embed: id within the table");
}

void check_norm(const Tensor& x, const Weight& weight, const NormParams& params, const Tensor& y) {
  if (!weight.is_meta()) check_weight(weight);
  check_activations(x);
  check_same_shape(x, y);
  check(weight.format.layout == WeightLayout::rows && weight.rows == 1 && weight.cols > 0 &&
            x.cols % weight.cols == 0,
        "norm: one weight for each column, or each of a part");
  check(params.eps >= 0, "norm: eps is not negative");
  check(params.squares == nullptr || (params.kind == NormKind::rms && x.cols == weight.cols &&
                                      params.squares_cols >= x.cols),
        "norm: sums of squares are of whole rows, and of a root mean square");
}

void check_linear(const Tensor& x, const Weight& w, const Tensor& y) {
  check_weight(w);
  check_activations(x);
  check_activations(y);
  check(w.format.layout == WeightLayout::packed && w.rows % kPanelRows == 0,
        "linear: packed weight of whole panels");
  check(x.cols == w.cols && y.cols == w.rows && x.rows == y.rows, "linear: y = x w^T");
  check(w.format.dtype != DType::i8 || w.cols <= kMostI8Cols, "linear: sums that fit int32");
}

void check_rope(const Tensor& x, int64_t head_dim, const Tensor& cos, const Tensor& sin) {
  check_activations(x);
  check_activations(cos);
  check_same_shape(cos, sin);
  check(head_dim > 0 && x.cols % head_dim == 0 && cos.rows == x.rows && 2 * cos.cols <= head_dim,
        "rope: angles for each row, at most head_dim / 2");
}

void check_store_kv(const Tensor& keys, const Tensor& values, std::span<const int64_t> slots,
                    const KvCache& cache) {
  check_cache(cache);
  check_activations(keys);
  check_activations(values);
  check(keys.cols == cache.kv_heads * cache.key_dim &&
            values.cols == cache.kv_heads * cache.value_dim,
        "store_kv: a row has all heads");
  check(keys.rows == static_cast<int64_t>(slots.size()) && values.rows == keys.rows,
        "store_kv: one slot for each row");
  for (int64_t slot : slots) {
    check(slot >= -1 && slot < cache.blocks * cache.block_size, "store_kv: slot within the cache");
  }
}

namespace {

void check_chunks(const KvCache& cache, std::span<const SequenceChunk> chunks,
                  const AttentionParams& params, int64_t rows) {
  for (const SequenceChunk& c : chunks) {
    check(c.first_row >= 0 && c.rows >= 0 && c.first_row + c.rows <= rows,
          "attention: rows of the batch");
    int64_t blocks =
        ceil_div(kv_entries(cache.tokens, c.first_position + c.rows - 1), cache.block_size);
    check(c.first_position >= 0 && blocks <= static_cast<int64_t>(c.block_table.size()),
          "attention: a block for each position");
    for (int64_t b = 0; b < blocks; ++b) {
      int32_t block = c.block_table[static_cast<size_t>(b)];
      const bool unseen = (b + 1) * cache.block_size <= first_attended(params, c.first_position);
      check((block >= 0 && block < cache.blocks) || (block == -1 && unseen),
            "attention: block within the cache");
    }
  }
}

}  // namespace

void check_paged_attention(const Tensor& q, const KvCache& cache,
                           std::span<const SequenceChunk> chunks, const AttentionParams& params,
                           const Tensor& out) {
  check_cache(cache);
  check_activations(q);
  check_activations(out);
  check(q.cols % (cache.kv_heads * cache.key_dim) == 0, "attention: whole groups of query heads");
  const int64_t heads = q.cols / cache.key_dim;
  check(out.rows == q.rows && out.cols == heads * cache.value_dim,
        "attention: a value for each query");
  auto one_a_head = [&](std::span<const float> s) { return s.empty() || std::ssize(s) == heads; };
  check(one_a_head(params.alibi_slopes) && one_a_head(params.sinks),
        "attention: a slope and a sink for each head, or none");
  check(params.window >= 0 && params.chunk >= 0 && params.soft_cap >= 0,
        "attention: window, chunk and cap are not negative");
  check(params.chosen.most == 0 || (params.chosen.positions != nullptr && params.window == 0 &&
                                    params.chunk == 0 && params.alibi_slopes.empty()),
        "attention: positions are chosen from all");
  check(cache.tokens == 1, "attention: a key for each token");
  check_chunks(cache, chunks, params, q.rows);
  if (params.more == nullptr) return;
  const KvCache& more = params.more->cache;
  check_cache(more);
  check(cache.latent && more.latent && cache.kv_heads == 1 && more.kv_heads == 1 &&
            more.key_dim == cache.key_dim && more.value_dim == cache.value_dim &&
            more.dtype == cache.dtype && params.chosen.most == 0 && params.alibi_slopes.empty() &&
            params.soft_cap == 0,
        "attention: more keys like the others");
  check(params.more->rows->chunks.size() == chunks.size(), "attention: both caches of a sequence");
  check_chunks(more, params.more->rows->chunks, {}, q.rows);
}

void check_choose_positions(const Tensor& q, const Tensor& weights, const KvCache& keys,
                            std::span<const SequenceChunk> chunks, const ChosenPositions& out) {
  check_cache(keys);
  check_activations(q);
  check_activations(weights);
  check(keys.kv_heads == 1 && weights.rows == q.rows && q.cols == weights.cols * keys.key_dim,
        "choose_positions: a query and a weight of each head");
  check(out.positions != nullptr && out.most > 0, "choose_positions: room for what is chosen");
  check_chunks(keys, chunks, {}, q.rows);
}

void check_same_shape(const Tensor& a, const Tensor& b) {
  check_activations(a);
  check_activations(b);
  check(a.rows == b.rows && a.cols == b.cols, "matrices of one shape");
}

void check_sum_squares(const Tensor& x, const Tensor& sums) {
  check_activations(x);
  check_activations(sums);
  check(sums.rows == x.rows && sums.cols == 1, "sum_squares: a sum for each row");
}

void check_causal_conv(const Tensor& x, const ConvParams& params, const StateRows& state,
                       const Tensor& y) {
  check_same_shape(x, y);
  check_state(state, x.rows);
  check(params.weight != nullptr && params.width >= 2 && params.width <= kMostConvWidth,
        "causal_conv: a weight of a width that kernels have");
  check(state.cache.rows == params.width - 1 && state.cache.cols == x.cols,
        "causal_conv: the state has the last inputs");
}

void check_decay(const Tensor& steps, const DecayParams& params, const Tensor& decays) {
  check_same_shape(steps, decays);
  check(params.log_rates != nullptr && params.bias != nullptr && params.least <= params.most &&
            params.of_head > 0 && steps.cols % params.of_head == 0 && params.floor <= 0,
        "decay: rates and bias of each head, and limits");
}

void check_slope_decays(const DecaySlopes& slopes, const Tensor& decays) {
  check_activations(decays);
  check(slopes.first >= 0 && slopes.first + decays.cols <= slopes.heads,
        "slope_decays: columns of the heads");
}

void check_scan(const ScanInputs& in, const ScanParams& params, const StateRows& state,
                const Tensor& out) {
  check_same_shape(in.queries, in.keys);
  check_same_shape(in.values, out);
  const int64_t of_head = params.decays_rows ? params.key_dim : 1;
  check(in.decays.rows == in.steps.rows && in.decays.cols == in.steps.cols * of_head &&
            (params.delta || !params.decays_rows),
        "scan: a decay for each head, or with a delta rule for each of its keys");
  check(in.keys.rows == out.rows && in.steps.rows == out.rows, "scan: as many rows of each");
  check_state(state, out.rows);
  const int64_t heads = in.steps.cols, d = params.key_dim;
  check(heads > 0 && d > 0 && in.keys.cols > 0 && in.keys.cols % d == 0 &&
            heads % (in.keys.cols / d) == 0,
        "scan: whole heads of keys, each for as many heads");
  check(out.cols == heads * state.cache.cols && state.cache.rows == heads * d,
        "scan: the state has a matrix for each head");
}

void check_selective_scan(const SelectiveInputs& in, const SelectiveParams& params,
                          const StateRows& state, const Tensor& out) {
  check_same_shape(in.queries, in.keys);
  check_same_shape(in.values, in.steps);
  check_same_shape(in.values, out);
  check(in.keys.rows == out.rows, "selective_scan: as many rows of each");
  check_state(state, out.rows);
  check(params.log_rates != nullptr && params.skip != nullptr,
        "selective_scan: rates and a factor of each channel");
  check(in.keys.cols > 0 && in.keys.cols <= kMostSelectiveKeys,
        "selective_scan: no more keys than kernels have room for");
  check(state.cache.rows == in.keys.cols && state.cache.cols == out.cols,
        "selective_scan: the state has a column for each channel");
}

void check_route(const Tensor& logits, const RouterParams& p, const ExpertChoices& out) {
  check_activations(logits);
  check(logits.rows == 0 || (out.experts != nullptr && out.weights != nullptr),
        "route: room for choices");
  check(logits.cols > 0 && logits.cols <= kMostExperts, "route: as many experts as kernels take");
  check(p.groups > 0 && logits.cols % p.groups == 0 && p.top_k_groups > 0 &&
            p.top_k_groups <= p.groups,
        "route: groups of as many experts each");
  check(p.top_k > 0 && p.top_k <= logits.cols / p.groups * p.top_k_groups,
        "route: enough experts to choose from");
  check(p.score != RouterScore::sparse_mixer || (p.bias == nullptr && p.groups == 1),
        "route: a sparse mixer has no bias and no groups");
  check(p.table == nullptr || (p.score != RouterScore::sparse_mixer && p.groups == 1 &&
                               std::ssize(p.ids) == logits.rows),
        "route: a token for each row, by which a table has experts");
}

void check_pool(const Tensor& values, const Tensor& gates, const PoolParams& params,
                const StateRows& state, const Tensor& out) {
  check_same_shape(values, gates);
  check_state(state, out.rows);
  check(params.bias != nullptr && params.tokens > 0 && values.rows == out.rows &&
            values.cols == (params.overlaps ? 2 : 1) * out.cols,
        "pool: values and gates of each column, once or twice");
  check(state.cache.rows == params.state_rows() && state.cache.cols == out.cols,
        "pool: the state has sums of each column");
}

void check_read_streams(const Tensor& streams, const StreamMix& mix, const Tensor& logits,
                        const Tensor& out) {
  const int64_t s = mix.streams;
  check_activations(streams);
  check_activations(logits);
  check_activations(out);
  check(s > 0 && s <= kMostStreams && streams.cols == s * out.cols && streams.rows == out.rows,
        "read_streams: streams beside one another");
  check(logits.rows == out.rows && (logits.cols == s || logits.cols == s * (2 + s)),
        "read_streams: logits of each stream");
  check(mix.scales != nullptr && mix.biases != nullptr, "read_streams: scales and biases");
}

void check_write_streams(const Tensor& x, const Tensor& weights, const Tensor& streams) {
  check_activations(x);
  check_activations(weights);
  check_activations(streams);
  const int64_t s = x.cols > 0 ? streams.cols / x.cols : 0;
  check(s > 0 && s <= kMostStreams && streams.cols == s * x.cols && streams.rows == x.rows &&
            weights.rows == x.rows && weights.cols == s * (1 + s),
        "write_streams: weights of each stream");
}

void check_multiply_heads(const Tensor& x, int64_t x_step, const HeadMatrices& m,
                          HeadProduct product, const Tensor& y, int64_t y_step) {
  check(x.dtype == DType::f32 && y.dtype == DType::f32 && x.rows == y.rows,
        "multiply_heads: float32 matrices of one number of rows");
  check(m.heads > 0 && m.rows > 0 && m.first_row >= 0 && m.weight.rows % kPanelRows == 0,
        "multiply_heads: whole panels of the heads' rows");
  const bool plain = product == HeadProduct::plain;
  check(m.tail >= 0, "multiply_heads: a tail of some elements, or none");
  const int64_t inner = m.rows + m.tail, outer = m.weight.cols + m.tail;
  const int64_t of_x = plain ? inner : outer, of_y = plain ? outer : inner;
  check(of_x <= x_step && of_y <= y_step && x.cols >= (m.heads - 1) * x_step + of_x &&
            y.cols >= (m.heads - 1) * y_step + of_y,
        "multiply_heads: room for all heads");
}

void check_index(const Tensor& of_rows, std::span<const int32_t> rows, const Tensor& weights,
                 const Tensor& all) {
  check_activations(of_rows);
  check_activations(all);
  check(of_rows.rows == std::ssize(rows) && of_rows.cols == all.cols,
        "index: a row of the other matrix for each");
  if (weights.data == nullptr) return;
  check_activations(weights);
  check(weights.rows == of_rows.rows && weights.cols == 1, "index: a weight for each row");
}

void check_soft_cap(const Tensor& x, float cap) {
  check_activations(x);
  check(cap > 0, "soft_cap: cap is positive");
}

void check_clamp(const Tensor& x, float limit) {
  check_activations(x);
  check(limit > 0, "clamp: limit is positive");
}

void check_scale_heads(const Tensor& x, const Tensor& factors) {
  check_activations(x);
  check_activations(factors);
  check((x.rows == factors.rows || factors.rows == 1) && factors.cols > 0 &&
            x.cols % factors.cols == 0,
        "scale_heads: a factor for each head of a row");
}

void check_mix(const Tensor& x, const Tensor& weights, int64_t dim, const Tensor& y) {
  check_activations(x);
  check_activations(weights);
  check_activations(y);
  check(x.rows == y.rows && x.rows == weights.rows, "mix: as many rows of each");
  check(dim > 0 && x.cols % dim == 0 && y.cols % dim == 0 && x.cols / dim <= kMostParts,
        "mix: rows of whole parts");
  check(weights.cols == x.cols / dim * (y.cols / dim), "mix: a weight for each pair of parts");
}

void check_match_squares(const Tensor& x, const Tensor& to, float least) {
  check_activations(x);
  check_activations(to);
  check(x.rows == to.rows && to.cols > 0 && x.cols % to.cols == 0,
        "match_squares: rows of whole parts");
  check(least > 0, "match_squares: what it divides by is positive");
}

void check_sum_moments(const Tensor& x, const Tensor& moments) {
  check_activations(x);
  check_activations(moments);
  check(x.rows == moments.rows && moments.cols == 2, "sum_moments: two numbers of each row");
}

void check_cut(const Tensor& x, const Tensor& moments, int64_t cols) {
  check_sum_moments(x, moments);
  check(cols >= x.cols && cols > 0, "cut: of rows that have as many columns");
}

void check_activate(const ActivationParams& activation, const Tensor& x, const Tensor& up,
                    const Tensor& out) {
  check_same_shape(x, out);
  check((activation.kind == Activation::xielu) == (activation.values != nullptr),
        "activate: values where the activation has any");
  check(!has_limit(activation.kind) || (activation.limit > 0 && up.data != nullptr),
        "activate: a limit, and what it limits");
  if (up.data != nullptr) check_same_shape(x, up);
}

void check_likeliest(const Tensor& logits) {
  check(logits.dtype == DType::f32 && logits.cols > 0 && logits.cols <= INT32_MAX,
        "likeliest: rows of float32 logits");
}

void check_top_logits(const Tensor& logits, int64_t k, const TopLogits& out) {
  check_likeliest(logits);
  check(k > 0 && k <= out.most, "top_logits: room for what is asked for");
}

}  // namespace sluice
