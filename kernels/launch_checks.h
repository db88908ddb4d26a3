// The shape contract of every op, checked alike by all backends (src/base/error.h: check).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernels.h"

namespace sluice {

void check_embed(const Weight& table, std::span<const int32_t> ids, const Tensor& out);
void check_norm(const Tensor& x, const Weight& weight, const NormParams& params, const Tensor& y);
void check_linear(const Tensor& x, const Weight& w, const Tensor& y);
void check_rope(const Tensor& x, int64_t head_dim, const Tensor& cos, const Tensor& sin);
void check_store_kv(const Tensor& keys, const Tensor& values, std::span<const int64_t> slots,
                    const KvCache& cache);
void check_paged_attention(const Tensor& q, const KvCache& cache,
                           std::span<const SequenceChunk> chunks, const AttentionParams& params,
                           const Tensor& out);
void check_choose_positions(const Tensor& q, const Tensor& weights, const KvCache& keys,
                            std::span<const SequenceChunk> chunks, const ChosenPositions& out);
// float32 matrices of one shape: residual adds.
void check_same_shape(const Tensor& a, const Tensor& b);
void check_sum_squares(const Tensor& x, const Tensor& sums);
void check_causal_conv(const Tensor& x, const ConvParams& params, const StateRows& state,
                       const Tensor& y);
void check_decay(const Tensor& steps, const DecayParams& params, const Tensor& decays);
void check_scan(const ScanInputs& inputs, const ScanParams& params, const StateRows& state,
                const Tensor& out);
void check_selective_scan(const SelectiveInputs& inputs, const SelectiveParams& params,
                          const StateRows& state, const Tensor& out);
void check_route(const Tensor& logits, const RouterParams& params, const ExpertChoices& out);
void check_pool(const Tensor& values, const Tensor& gates, const PoolParams& params,
                const StateRows& state, const Tensor& out);
void check_read_streams(const Tensor& streams, const StreamMix& mix, const Tensor& logits,
                        const Tensor& out);
void check_write_streams(const Tensor& x, const Tensor& weights, const Tensor& streams);
void check_multiply_heads(const Tensor& x, int64_t x_step, const HeadMatrices& matrices,
                          HeadProduct product, const Tensor& y, int64_t y_step);
void check_index(const Tensor& of_rows, std::span<const int32_t> rows, const Tensor& weights,
                 const Tensor& all);
void check_soft_cap(const Tensor& x, float cap);
void check_clamp(const Tensor& x, float limit);
void check_scale_heads(const Tensor& x, const Tensor& factors);
void check_activate(const ActivationParams& activation, const Tensor& x, const Tensor& up,
                    const Tensor& out);
void check_likeliest(const Tensor& logits);
void check_top_logits(const Tensor& logits, int64_t k, const TopLogits& out);

}  // namespace sluice
