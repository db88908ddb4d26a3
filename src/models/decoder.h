// The decoder that families share: embedding, layers of attention and gated MLP, norm, head. A
// family is a set of values.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "src/models/config.h"
#include "src/models/layer_groups.h"
#include "src/nn/layers.h"

namespace sluice {

// The rows that go through the model together, where the kernels take them from.
struct Batch {
  StepRows rows;                    // with `kv` of each of the model's layer groups
  std::span<const KvCache> caches;  // one a layer
};

// Tensors in which a checkpoint may have the scales of a layer's FP8 keys and values: every tool
// that makes them has its own name. One that is in both lists serves both.
struct KvScaleNames {
  std::vector<std::string> key;
  std::vector<std::string> value;
};

// Activations for at most `max_rows` rows, carved from one buffer. All float32.
class Activations {
 public:
  static uint64_t bytes(const DecoderConfig& config, int64_t max_rows, Rank rank);
  // `memory` has bytes(...) and is 64-byte aligned.
  Activations(const DecoderConfig& config, int64_t max_rows, Rank rank,
              std::span<std::byte> memory);

  // The first `rows` rows of each.
  Tensor residual(int64_t rows) const { return residual_.rows_from(0, rows); }
  Tensor normed(int64_t rows) const { return normed_.rows_from(0, rows); }
  Tensor qkv(int64_t rows) const { return qkv_.rows_from(0, rows); }
  Tensor attention(int64_t rows) const { return attention_.rows_from(0, rows); }
  Tensor gate_up(int64_t rows) const { return gate_up_.rows_from(0, rows); }
  int64_t max_rows() const { return residual_.rows; }

 private:
  Tensor residual_, normed_, qkv_, attention_, gate_up_;
};

class DecoderLayer : public Module {
 public:
  // `window`: tokens that it attends to; 0: all.
  DecoderLayer(std::string path, const DecoderConfig& config, int64_t window, Rank rank);
  // `kv` and `cache` are this layer's. residual: the stream before this layer, without `delta` (the
  // output of the previous layer's MLP, or null data for the first layer); on return delta holds
  // this layer's MLP output and residual all before it.
  void forward(const Kernels& kernels, const Batch& batch, const KvRows& kv, const KvCache& cache,
               const Activations& act, bool first) const;
  KvScaleNames kv_scale_names() const;

 private:
  const DecoderConfig& config_;
  int64_t window_;
  RmsNorm* input_norm_;
  Linear* qkv_;
  Linear* output_;
  RmsNorm* post_norm_;
  Linear* gate_up_;
  Linear* down_;
};

// The root module. Its units, in the order of a sweep: the embedding, each layer, the norm and
// head.
class CausalLM : public Module {
 public:
  // Refuses (Error usage) a rank count that does not divide the heads.
  CausalLM(DecoderConfig config, Rank rank);

  const DecoderConfig& config() const { return config_; }
  Rank rank() const { return rank_; }
  std::span<Module* const> units() const { return units_; }
  const LayerGroups& layer_groups() const { return groups_; }

  std::vector<KvScaleNames> kv_scale_names() const;  // of each layer
  // Of each layer, when an FP8 KV cache has the checkpoint's; else empty, and each token and head
  // has its own.
  std::span<const KvScales> kv_scales() const { return kv_scales_; }
  void use_kv_scales(std::vector<KvScales> scales);

  // Rows through the units before the head, each when the one before it is done; what comes out of
  // the last, the final norm, is in act.normed(rows).
  size_t forward_units() const { return layers_.size() + 2; }
  void forward(const Kernels& kernels, const Batch& batch, const Activations& act,
               size_t unit) const;
  // logits [rows, logits_cols()] of rows of the final norm's output; the columns past vocab_size
  // are padding.
  void logits(const Kernels& kernels, Tensor hidden, Tensor logits) const;
  int64_t logits_cols() const;
  // What the kernels' scratch must hold for steps of at most max_rows rows.
  WorkspaceNeeds workspace_needs(int64_t max_rows) const;

 private:
  DecoderConfig config_;
  Rank rank_;
  LayerGroups groups_;
  std::vector<KvScales> kv_scales_;
  Embedding* embedding_;
  std::vector<DecoderLayer*> layers_;
  RmsNorm* norm_;
  const Param* head_;  // the embedding's table when tied
  std::vector<Module*> units_;
};

}  // namespace sluice
