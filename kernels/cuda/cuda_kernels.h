// The ops of a forward pass on a GPU: each is work of one stream, by the functions of ops.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/backend.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/step_rows.h"

namespace sluice::cuda {

class CudaKernels final : public Kernels {
 public:
  static WorkspaceBytes bytes(const WorkspaceNeeds& needs, bool gemm);
  // `gemm` may be null: then all linear layers are computed kFewRows rows at a time.
  CudaKernels(Device& device, DeviceStream& stream, Compute compute, const WorkspaceNeeds& needs,
              Gemm* gemm, const Workspace& memory);

  std::string_view name() const override { return "cuda"; }
  DeviceStream& stream() const override { return stream_; }
  StepRows upload(const StepRows& rows) override { return upload_.upload(rows); }
  void embed(const Weight& table, std::span<const int32_t> ids, Tensor out) const override;
  void norm(Tensor x, const Weight& weight, const NormParams& params, Tensor y) const override;
  void add_norm(Tensor residual, Tensor x, const Weight& weight, const NormParams& params,
                Tensor y) const override;
  void sum_squares(Tensor x, Tensor sums) const override;
  void linear(Tensor x, const Weight& w, const float* bias, Tensor y) const override;
  bool fuses(const Weight& w, int64_t rows, const Fusion& fusion) const override;
  void fused_linear(Tensor x, const Weight& w, const float* bias, const Fusion& fusion,
                    Tensor y) const override;
  void multiply_heads(Tensor x, int64_t x_step, const HeadMatrices& matrices, HeadProduct product,
                      Tensor y, int64_t y_step) const override;
  void rope(Tensor x, int64_t head_dim, RopePairing pairing, Tensor cos, Tensor sin) const override;
  void store_kv(Tensor keys, Tensor values, std::span<const int64_t> slots,
                const KvCache& cache) const override;
  void rope_store_kv(Tensor q, Tensor keys, Tensor values, RopePairing pairing, Tensor cos,
                     Tensor sin, std::span<const int64_t> slots,
                     const KvCache& cache) const override;
  void paged_attention(Tensor q, const KvCache& cache, const KvRows& rows,
                       const AttentionParams& params, Tensor out) const override;
  void rope_store_attend(Tensor q, Tensor keys, Tensor values, RopePairing pairing, Tensor cos,
                         Tensor sin, const KvCache& cache, const KvRows& rows,
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
  void scan(const ScanInputs& inputs, const ScanParams& params, const StateRows& state,
            Tensor out) const override;
  void selective_scan(const SelectiveInputs& inputs, const SelectiveParams& params,
                      const StateRows& state, Tensor out) const override;
  void route(Tensor logits, const RouterParams& params, const ExpertChoices& out) const override;
  void index_select(Tensor x, std::span<const int32_t> rows, Tensor weights,
                    Tensor out) const override;
  void index_add(Tensor x, std::span<const int32_t> rows, Tensor weights, Tensor y) const override;
  bool computes_experts(const ExpertWeights& weights, int64_t top_k) const override;
  void experts(Tensor x, const ExpertWeights& weights, int64_t top_k, const ExpertChoices& choices,
               const SharedExpert& shared, Tensor y) const override;
  void soft_cap(Tensor x, float cap) const override;
  void clamp(Tensor x, float limit) const override;
  void scale_heads(Tensor x, Tensor factors) const override;
  void likeliest(Tensor logits, std::span<TokenLogit> out) const override;
  void top_logits(Tensor logits, int64_t k, const TopLogits& out) const override;

 private:
  struct Attention;  // one call's arguments
  template <class Body>
  void for_rows(int64_t first, int64_t rows, uint64_t one, Body&& body) const;
  void decode_rows(const Attention& a, int64_t first_row, int64_t rows, int64_t longest) const;

  DeviceStream& stream_;
  Compute compute_;
  Gemm* gemm_;
  int64_t longest_;  // sequence that was promised
  StepUpload upload_;
  std::span<std::byte> counters_;  // zeros between ops
  std::span<std::byte> scratch_;   // ops run one after the other, so each starts from its beginning
};

}  // namespace sluice::cuda
