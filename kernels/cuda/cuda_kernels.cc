#include "kernels/cuda/cuda_kernels.h"

#include <algorithm>

#include "kernels/cuda/experts.h"
#include "kernels/cuda/linear_many.h"
#include "src/base/units.h"

namespace sluice::cuda {
namespace {

constexpr uint64_t kAlignment = 256;
// Scratch of attention, or of a choice of positions, over few rows at a time; more where one row
// needs more.
constexpr uint64_t kAttentionScratch = uint64_t{16} << 20;

// Scratch of ops that need so many bytes for a row, as far as there are rows.
uint64_t scratch_of_rows(uint64_t one, int64_t rows) {
  return std::clamp(kAttentionScratch, one, std::max(one, one * static_cast<uint64_t>(rows)));
}

uint64_t attention_scratch(const WorkspaceNeeds& n) {
  const int64_t more = n.more_keys ? n.longest : 0;
  const uint64_t attention =
      scratch_of_rows(decode_workspace_bytes(1, n.heads, n.value_dim, n.longest, more), n.max_rows);
  if (n.chosen == 0) return attention;
  const int64_t longest = ceil_div(n.longest, kPartition) * kPartition;
  return std::max(attention, scratch_of_rows(choice_workspace_bytes(1, longest), n.max_rows));
}

uint64_t scratch_bytes(const WorkspaceNeeds& n, bool gemm) {
  uint64_t linear = few_rows_workspace_bytes(n.max_cols);
  if (gemm && n.max_rows > kFewRows)
    linear = std::max(linear, linear_many_workspace_bytes(n.max_rows, n.max_cols));
  const ExpertNeeds experts{n.max_rows, n.top_k, n.experts, n.expert_hidden, n.expert_cols};
  const uint64_t heads = n.grouped ? heads_workspace_bytes(n.head_cols) : 0;
  return std::max({linear, heads, attention_scratch(n), experts_workspace_bytes(experts)});
}

// Counters of the blocks that attend for a row's heads.
uint64_t counter_bytes(const WorkspaceNeeds& n) {
  return round_up(static_cast<uint64_t>(n.max_rows * n.heads) * sizeof(int32_t), kAlignment);
}

uint64_t upload_bytes(const WorkspaceNeeds& n) {
  return round_up(StepUpload::bytes(n), kAlignment);
}

Workspace upload_memory(const WorkspaceNeeds& n, const Workspace& memory) {
  return {memory.device.first(upload_bytes(n)), memory.host};
}

}  // namespace

WorkspaceBytes CudaKernels::bytes(const WorkspaceNeeds& needs, bool gemm) {
  return {upload_bytes(needs) + counter_bytes(needs) + scratch_bytes(needs, gemm),
          upload_bytes(needs)};
}

CudaKernels::CudaKernels(Device& device, DeviceStream& stream, Compute compute,
                         const WorkspaceNeeds& needs, Gemm* gemm, const Workspace& memory)
    : stream_(stream),
      compute_(compute),
      gemm_(gemm),
      longest_(needs.longest),
      upload_(device, stream, needs, upload_memory(needs, memory)),
      counters_(memory.device.subspan(upload_bytes(needs), counter_bytes(needs))),
      scratch_(memory.device.subspan(upload_bytes(needs) + counter_bytes(needs))) {
  if (!counters_.empty()) stream.clear(counters_.data(), counters_.size());
}

void CudaKernels::embed(const Weight& table, std::span<const int32_t> ids, Tensor out) const {
  check(std::ssize(ids) == out.rows, "embed: one row of the table for each id");
  cuda::embed(table, ids.data(), out, stream_.handle());
}

void CudaKernels::norm(Tensor x, const Weight& weight, const NormParams& params, Tensor y) const {
  cuda::norm(x, weight, params, y, stream_.handle());
}

void CudaKernels::add_norm(Tensor residual, Tensor x, const Weight& weight,
                           const NormParams& params, Tensor y) const {
  cuda::add_norm(residual, x, weight, params, y, stream_.handle());
}

void CudaKernels::linear(Tensor x, const Weight& w, const float* bias, Tensor y) const {
  // Panels are read twice sooner than they are put into rows and read again.
  const int64_t few = (w.format.layout == WeightLayout::packed ? 2 : 1) * kFewRows;
  if (x.rows > few && gemm_ != nullptr && linear_many_fits(w, compute_) &&
      linear_many_rows(x, w, bias, *gemm_, scratch_, y, stream_.handle()))
    return;
  check(few_rows_workspace_bytes(w.cols) <= scratch_.size(), "linear: workspace");
  const int64_t most = most_rows(w, compute_);
  for (int64_t row = 0; row < x.rows; row += most) {
    const int64_t rows = std::min(most, x.rows - row);
    linear_few_rows(x.rows_from(row, rows), w, bias, compute_, scratch_.data(),
                    y.rows_from(row, rows), stream_.handle());
  }
}

bool CudaKernels::fuses(const Weight& w, int64_t rows, const Fusion& fusion) const {
  return fusion_fits(w, rows, fusion, compute_);
}

void CudaKernels::fused_linear(Tensor x, const Weight& w, const float* bias, const Fusion& fusion,
                               Tensor y) const {
  check(few_rows_workspace_bytes(w.cols) <= scratch_.size(), "linear: workspace");
  linear_few_rows(x, w, bias, compute_, scratch_.data(), y, stream_.handle(), fusion);
}

void CudaKernels::multiply_heads(Tensor x, int64_t x_step, const HeadMatrices& matrices,
                                 HeadProduct product, Tensor y, int64_t y_step) const {
  cuda::multiply_heads(x, x_step, matrices, product, y, y_step, scratch_, stream_.handle());
}

void CudaKernels::rope(Tensor x, int64_t head_dim, RopePairing pairing, Tensor cos,
                       Tensor sin) const {
  cuda::rope(x, head_dim, pairing, cos, sin, stream_.handle());
}

void CudaKernels::store_kv(Tensor keys, Tensor values, std::span<const int64_t> slots,
                           const KvCache& cache) const {
  check(std::ssize(slots) == keys.rows, "store_kv: one slot for each row");
  cuda::store_kv(keys, values, slots.data(), cache, stream_.handle());
}

void CudaKernels::rope_store_kv(Tensor q, Tensor keys, Tensor values, RopePairing pairing,
                                Tensor cos, Tensor sin, std::span<const int64_t> slots,
                                const KvCache& cache) const {
  check(std::ssize(slots) == keys.rows, "rope_store_kv: one slot for each row");
  cuda::rope_store_kv(q, keys, values, pairing, cos, sin, slots.data(), cache, stream_.handle());
}

// Calls body(row, rows) for as many rows at a time as the scratch has room for, `one` byte each.
template <class Body>
void CudaKernels::for_rows(int64_t first, int64_t rows, uint64_t one, Body&& body) const {
  check(one <= scratch_.size(), "workspace for a row");
  const auto most = static_cast<int64_t>(scratch_.size() / one);
  for (int64_t at = first; at < first + rows; at += most)
    body(at, std::min(most, first + rows - at));
}

struct CudaKernels::Attention {
  const Tensor& q;
  const KvCache& cache;
  const DeviceChunks& chunks;
  AttentionSettings settings;
  const Tensor& out;
  const NewTokens* tokens = nullptr;  // null: all are stored
};

namespace {

std::optional<NewTokens> rows_from(const NewTokens* all, int64_t first, int64_t count) {
  if (all == nullptr) return std::nullopt;
  return NewTokens{
      all->keys.rows_from(first, count), all->values.rows_from(first, count), all->pairing,
      all->cos.rows_from(first, count),  all->sin.rows_from(first, count),    all->slots + first};
}

AttentionSettings settings_of(const AttentionParams& params) {
  return {params.scale,
          params.window,
          params.chunk,
          params.soft_cap,
          params.alibi_slopes.empty() ? nullptr : params.alibi_slopes.data(),
          params.sinks.empty() ? nullptr : params.sinks.data(),
          params.chosen};
}

std::optional<MoreTokens> more_tokens(const MoreKeys* more) {
  if (more == nullptr) return std::nullopt;
  check(more->rows->on_device != nullptr, "attention: rows that upload() has made");
  const DeviceChunks& chunks = *more->rows->on_device;
  return MoreTokens{more->cache, chunks.tables, chunks.sequences, more->chosen};
}

}  // namespace

// `longest`: most positions that any row attends to.
void CudaKernels::decode_rows(const Attention& a, int64_t first_row, int64_t rows,
                              int64_t longest) const {
  const int64_t heads = a.q.cols / a.cache.key_dim;
  AttentionSettings settings = a.settings;
  if (settings.chosen.most > 0) longest = std::min(longest, settings.chosen.most);
  const MoreTokens* more = settings.more;
  const uint64_t one = decode_workspace_bytes(1, heads, a.cache.value_dim, longest,
                                              more != nullptr ? more->longest(longest) : 0);
  check(static_cast<uint64_t>(rows * heads) * sizeof(int32_t) <= counters_.size(),
        "attention: as many rows and heads as were promised");
  for_rows(first_row, rows, one, [&](int64_t at, int64_t count) {
    settings.chosen.positions = a.settings.chosen.positions + at * settings.chosen.most;
    MoreTokens rest;
    if (more != nullptr) {
      rest = *more;
      rest.sequences += at;
      rest.chosen.positions += at * rest.chosen.most;
      settings.more = &rest;
    }
    const Tensor q = a.q.rows_from(at, count), out = a.out.rows_from(at, count);
    const DecodeRows rows_of{a.chunks.sequences + at, a.chunks.positions + at, longest,
                             reinterpret_cast<int32_t*>(counters_.data())};
    if (is_wide(a.cache))
      return attention_wide(q, a.cache, {a.chunks.tables, 1}, rows_of, settings, scratch_.data(),
                            out, stream_.handle());
    const std::optional<NewTokens> tokens = rows_from(a.tokens, at, count);
    attention_decode(q, a.cache, {a.chunks.tables, 1}, rows_of, settings, scratch_.data(), out,
                     stream_.handle(), tokens ? &*tokens : nullptr);
  });
}

// Neighbouring chunks of one kind go together.
void CudaKernels::paged_attention(Tensor q, const KvCache& cache, const KvRows& rows,
                                  const AttentionParams& params, Tensor out) const {
  check(rows.on_device != nullptr, "attention: rows that upload() has made");
  const std::optional<MoreTokens> more = more_tokens(params.more);
  Attention a{q, cache, *rows.on_device, settings_of(params), out};
  if (more) a.settings.more = &*more;
  const bool tensor_cores =
      compute_ == Compute::bf16 && cache.dtype != DType::f32 && !is_wide(cache);
  auto many = [&](const SequenceChunk& c) { return tensor_cores && c.rows >= kPrefillRows; };
  for (size_t begin = 0, end = 0; begin < rows.chunks.size(); begin = end) {
    const bool prefill = many(rows.chunks[begin]);
    int64_t count = 0, most_rows = 0, longest = 0;
    for (end = begin; end < rows.chunks.size() && many(rows.chunks[end]) == prefill; ++end) {
      const SequenceChunk& c = rows.chunks[end];
      count += c.rows;
      most_rows = std::max(most_rows, c.rows);
      longest = std::max(longest, c.first_position + c.rows);
    }
    if (prefill) {
      attention_prefill(q, cache, {a.chunks.tables, 1}, a.chunks.chunks + begin,
                        static_cast<int64_t>(end - begin), most_rows, a.settings, out,
                        stream_.handle());
    } else {
      decode_rows(a, rows.chunks[begin].first_row, count, launched_length(longest, longest_));
    }
  }
}

// One launch for rows of different sequences; of the same one, rows attend to each other.
void CudaKernels::rope_store_attend(Tensor q, Tensor keys, Tensor values, RopePairing pairing,
                                    Tensor cos, Tensor sin, const KvCache& cache,
                                    const KvRows& rows, const AttentionParams& params,
                                    Tensor out) const {
  if (is_wide(cache) || !are_apart(rows.chunks))
    return Kernels::rope_store_attend(q, keys, values, pairing, cos, sin, cache, rows, params, out);
  check(rows.on_device != nullptr, "attention: rows that upload() has made");
  check(std::ssize(rows.slots) == keys.rows, "rope_store_attend: one slot for each row");
  int64_t longest = 0;
  for (const SequenceChunk& c : rows.chunks) longest = std::max(longest, c.first_position + 1);
  const NewTokens tokens{keys, values, pairing, cos, sin, rows.slots.data()};
  const Attention a{q, cache, *rows.on_device, settings_of(params), out, &tokens};
  decode_rows(a, 0, q.rows, launched_length(longest, longest_));
}

void CudaKernels::choose_positions(Tensor q, Tensor weights, const KvCache& keys,
                                   const KvRows& rows, const ChosenPositions& out) const {
  check(rows.on_device != nullptr, "choose_positions: rows that upload() has made");
  const DeviceChunks& chunks = *rows.on_device;
  int64_t longest = 0;
  for (const SequenceChunk& c : rows.chunks) longest = std::max(longest, c.first_position + c.rows);
  longest = launched_length(longest, longest_);
  for_rows(0, q.rows, choice_workspace_bytes(1, longest), [&](int64_t at, int64_t count) {
    cuda::choose_positions(
        q.rows_from(at, count), weights.rows_from(at, count), keys, {chunks.tables, 1},
        {chunks.sequences + at, chunks.positions + at, longest},
        {out.positions + at * out.most, out.most}, scratch_.data(), stream_.handle());
  });
}

void CudaKernels::activate(const ActivationParams& activation, Tensor x, Tensor up,
                           Tensor out) const {
  cuda::activate(activation, x, up, out, stream_.handle());
}

void CudaKernels::add(Tensor x, Tensor y) const { cuda::add(x, y, stream_.handle()); }

void CudaKernels::scale(Tensor x, float factor, const float* by) const {
  cuda::scale(x, factor, by, stream_.handle());
}

void CudaKernels::route(Tensor logits, const RouterParams& params, const ExpertChoices& out) const {
  cuda::route(logits, params, out, stream_.handle());
}

void CudaKernels::index_select(Tensor x, std::span<const int32_t> rows, Tensor weights,
                               Tensor out) const {
  cuda::index_select(x, rows, weights, out, stream_.handle());
}

void CudaKernels::index_add(Tensor x, std::span<const int32_t> rows, Tensor weights,
                            Tensor y) const {
  cuda::index_add(x, rows, weights, y, stream_.handle());
}

bool CudaKernels::computes_experts(const ExpertWeights& weights, int64_t top_k) const {
  return experts_fit(weights, top_k, compute_);
}

void CudaKernels::experts(Tensor x, const ExpertWeights& weights, int64_t top_k,
                          const ExpertChoices& choices, const SharedExpert& shared,
                          Tensor y) const {
  cuda::experts(x, weights, top_k, choices, shared, scratch_, y, stream_.handle());
}

void CudaKernels::scale_heads(Tensor x, Tensor factors) const {
  cuda::scale_heads(x, factors, stream_.handle());
}

void CudaKernels::soft_cap(Tensor x, float cap) const { cuda::soft_cap(x, cap, stream_.handle()); }

void CudaKernels::clamp(Tensor x, float limit) const { cuda::clamp(x, limit, stream_.handle()); }

namespace {

// Prompts are known by their chunks, other rows by themselves, so that steps of as many rows are
// the same launches.
StateChunks state_chunks(const StateRows& state) {
  const KvRows& first = state.groups.front();
  check(first.on_device != nullptr, "states of rows that upload() has made");
  StateChunks chunks{.tables = first.on_device->tables,
                     .sequences = first.on_device->sequences,
                     .positions = first.on_device->positions};
  if (state.groups.size() > 1) chunks.second = state.groups[1].on_device->sequences;
  const bool prompts = std::ranges::any_of(
      first.chunks, [](const SequenceChunk& c) { return c.rows >= kPrefillRows; });
  if (!prompts) return chunks;
  chunks.chunks = first.on_device->chunks;
  chunks.count = std::ssize(first.chunks);
  return chunks;
}

}  // namespace

void CudaKernels::causal_conv(Tensor x, const ConvParams& params, const StateRows& state,
                              Tensor y) const {
  cuda::causal_conv(x, params, state, state_chunks(state), y, stream_.handle());
}

void CudaKernels::decay(Tensor steps, const DecayParams& params, Tensor decays) const {
  cuda::decay(steps, params, decays, stream_.handle());
}

void CudaKernels::pool(Tensor values, Tensor gates, const PoolParams& params,
                       const StateRows& state, Tensor out) const {
  cuda::pool(values, gates, params, state, state_chunks(state), out, stream_.handle());
}

void CudaKernels::read_streams(Tensor streams, const StreamMix& mix, Tensor logits,
                               Tensor out) const {
  cuda::read_streams(streams, mix, logits, out, stream_.handle());
}

void CudaKernels::write_streams(Tensor x, Tensor weights, Tensor streams) const {
  cuda::write_streams(x, weights, streams, stream_.handle());
}

void CudaKernels::scan(const ScanInputs& inputs, const ScanParams& params, const StateRows& state,
                       Tensor out) const {
  cuda::scan(inputs, params, state, state_chunks(state), out, stream_.handle());
}

void CudaKernels::selective_scan(const SelectiveInputs& inputs, const SelectiveParams& params,
                                 const StateRows& state, Tensor out) const {
  cuda::selective_scan(inputs, params, state, state_chunks(state), out, stream_.handle());
}

void CudaKernels::sum_squares(Tensor x, Tensor sums) const {
  cuda::sum_squares(x, sums, stream_.handle());
}

void CudaKernels::likeliest(Tensor logits, std::span<TokenLogit> out) const {
  check(std::ssize(out) == logits.rows, "likeliest: one result for each row");
  cuda::likeliest(logits, out.data(), stream_.handle());
}

void CudaKernels::top_logits(Tensor logits, int64_t k, const TopLogits& out) const {
  cuda::top_logits(logits, k, out, stream_.handle());
}

}  // namespace sluice::cuda
