// Plain loops: what every other backend is compared with. Sums of norms and attention are taken in
// float64; linear sums in float32, column by column, as its contract says.
#pragma once

#include "kernels/kernels.h"

namespace sluice {

class ReferenceKernels final : public Kernels {
 public:
  explicit ReferenceKernels(Compute compute) : compute_(compute) {}

  std::string_view name() const override { return "reference"; }
  void embed(const Weight& table, std::span<const int32_t> ids, Tensor out) const override;
  void norm(Tensor x, const Weight& weight, const NormParams& params, Tensor y) const override;
  void add_norm(Tensor residual, Tensor x, const Weight& weight, const NormParams& params,
                Tensor y) const override;
  void sum_squares(Tensor x, Tensor sums) const override;
  void linear(Tensor x, const Weight& w, const float* bias, Tensor y) const override;
  void multiply_heads(Tensor x, int64_t x_step, const HeadMatrices& matrices, HeadProduct product,
                      Tensor y, int64_t y_step) const override;
  void rope(Tensor x, int64_t head_dim, RopePairing pairing, Tensor cos, Tensor sin) const override;
  void store_kv(Tensor keys, Tensor values, std::span<const int64_t> slots,
                const KvCache& cache) const override;
  void paged_attention(Tensor q, const KvCache& cache, const KvRows& rows,
                       const AttentionParams& params, Tensor out) const override;
  void choose_positions(Tensor q, Tensor weights, const KvCache& keys, const KvRows& rows,
                        const ChosenPositions& out) const override;
  void activate(const ActivationParams& activation, Tensor x, Tensor up, Tensor out) const override;
  void add(Tensor x, Tensor y) const override;
  void scale(Tensor x, float factor, const float* by) const override;
  void causal_conv(Tensor x, const ConvParams& params, const StateRows& state,
                   Tensor y) const override;
  void pool(Tensor values, Tensor gates, const PoolParams& params, const StateRows& state,
            Tensor out) const override;
  void read_streams(Tensor streams, const StreamMix& mix, Tensor logits, Tensor out) const override;
  void write_streams(Tensor x, Tensor weights, Tensor streams) const override;
  void decay(Tensor steps, const DecayParams& params, Tensor decays) const override;
  void slope_decays(const DecaySlopes& slopes, Tensor decays) const override;
  void scan(const ScanInputs& inputs, const ScanParams& params, const StateRows& state,
            Tensor out) const override;
  void selective_scan(const SelectiveInputs& inputs, const SelectiveParams& params,
                      const StateRows& state, Tensor out) const override;
  void route(Tensor logits, const RouterParams& params, const ExpertChoices& out) const override;
  void index_select(Tensor x, std::span<const int32_t> rows, Tensor weights,
                    Tensor out) const override;
  void index_add(Tensor x, std::span<const int32_t> rows, Tensor weights, Tensor y) const override;
  void soft_cap(Tensor x, float cap) const override;
  void clamp(Tensor x, float limit) const override;
  void scale_heads(Tensor x, Tensor factors) const override;
  void mix(Tensor x, Tensor weights, float added, int64_t dim, Tensor y) const override;
  void match_squares(Tensor x, Tensor to, float least) const override;
  void sum_moments(Tensor x, Tensor moments) const override;
  void cut(Tensor x, float deviations, Tensor moments, int64_t cols) const override;
  void likeliest(Tensor logits, std::span<TokenLogit> out) const override;
  void top_logits(Tensor logits, int64_t k, const TopLogits& out) const override;

 private:
  Compute compute_;
};

class ReferenceEncoder final : public Encoder {
 public:
  EncodeStats encode(const EncodeArgs& args) const override;
  float absolute_max(const std::byte* source, DType stored, int64_t source_stride, int64_t rows,
                     int64_t cols) const override;
  void order_columns(const Weight& to, int64_t first_row, int64_t rows,
                     const int32_t* order) const override;
};

}  // namespace sluice
