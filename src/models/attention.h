// The mixer of softmax attention: q, k and v in one product, rope, the KV cache, the output.
#pragma once

#include <string>
#include <vector>

#include "kernels/kv_spec.h"
#include "src/models/activations.h"
#include "src/models/decoder_spec.h"
#include "src/nn/layers.h"

namespace sluice {

// Names under which a checkpoint may have the scales of a layer's FP8 keys and values; each tool
// has its own names. A name in both lists is one scale for both.
struct KvScaleNames {
  std::vector<std::string> key;
  std::vector<std::string> value;
};

class Attention : public Module {
 public:
  // `model` and its `spec` outlive it.
  Attention(const DecoderSpec& model, const AttentionSpec& spec, int64_t layer, Rank rank);
  // x [rows, hidden_size] → y, whole panels wide, which may begin where x does. `kv` and `cache`:
  // this mixer's.
  void forward(const Context& context, const StepRows& step, const KvRows& kv, const KvCache& cache,
               const Activations& act, Tensor x, Tensor y) const;
  KvScaleNames kv_scale_names() const;
  std::vector<KvSpec> kv_specs(Rank rank) const;

 private:
  struct Prepared {
    const Norm* norm;  // or none
    const Share& angles;
  };
  const Norm* add_norm(const NormSpec& spec, const Dimension& heads, int64_t layer, Rank rank);
  void normalize(const Context& context, const Activations& act, const Norm* norm, Tensor x) const;
  void turn(const Context& context, const StepRows& step, const Share& angles, Tensor heads) const;
  void prepare(const Context& context, const StepRows& step, const Activations& act,
               const Prepared& how, Tensor x) const;
  // Returns what the cache gets as values.
  Tensor values(const Context& context, const Activations& act, Tensor qkv) const;
  // Queries and keys with norm and rope; keys and values in the cache.
  void prepare_and_store(const Context& context, const StepRows& step, const KvRows& kv,
                         const KvCache& cache, const Activations& act, Tensor qkv) const;

  const AttentionSpec& spec_;
  Share key_angles_, query_angles_;        // the columns of a step's cos and sin
  std::string key_source_, value_source_;  // paths of the projections
  Linear* qkv_;
  const Norm* q_norm_;  // or none
  const Norm* k_norm_;
  const Norm* v_norm_;
  Linear* output_;
};

}  // namespace sluice
