// The decoder that families share, built from a DecoderSpec: embedding, layers, norm, head.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/kv_spec.h"
#include "src/models/activations.h"
#include "src/models/altup.h"
#include "src/models/decoder_spec.h"
#include "src/models/experts.h"
#include "src/models/input_gate.h"
#include "src/models/mixers/mixer.h"
#include "src/models/mlp.h"
#include "src/models/pipeline.h"
#include "src/nn/layers.h"

namespace sluice {

// The rows of one step, in the memory from which the kernels read them.
struct Batch {
  StepRows rows;  // with `kv` of each group of mixers
  // The caches of each mixer, in the order of layers, and of its specs.
  std::span<const std::vector<LayerKv>> mixers;
};

// The tables that rows of the residual stream begin with.
class InputEmbedding : public Module {
 public:
  // `spec` outlives it. `vocabulary`: rows of the table of tokens, as ranks divide it.
  InputEmbedding(const DecoderSpec& spec, const Dimension& vocabulary, Rank rank);
  // Positions, where the model has a table of them, are left in act.normed, to be added by the
  // first layer.
  void forward(const Context& context, const StepRows& rows, const Activations& act) const;
  bool leaves_delta() const { return positions_ != nullptr; }
  const Param& table() const { return tokens_->table(); }

 private:
  void add_sinusoids(const Kernels& kernels, const StepRows& rows, Tensor to) const;
  void compute_layer_inputs(const Context& context, const StepRows& rows,
                            const Activations& act) const;

  const DecoderSpec& spec_;
  Embedding* tokens_;
  Linear* projection_ = nullptr;  // or none
  Embedding* positions_ = nullptr;
  const Norm* norm_ = nullptr;
  const AltUpEntry* altup_ = nullptr;
  Embedding* layer_table_ = nullptr;  // and these two, or none
  Linear* layer_projection_ = nullptr;
  const Norm* layer_norm_ = nullptr;
};

// Reads residual streams as one, by weights that are products of all of them, and writes to them.
class StreamReader : public Module {
 public:
  // `writes`: a branch's; else the model's last. `streams` outlives it.
  StreamReader(const StreamMixSpec& spec, const StreamsSpec& streams, int64_t layer,
               int64_t hidden_size, bool writes);
  void read(const Context& context, const Activations& act, Tensor out) const;
  void write(const Context& context, const Activations& act, Tensor x) const;

 private:
  const StreamsSpec& streams_;
  Linear* logits_;
  const Param* scales_;
  const Param* biases_;
};

class DecoderLayer : public Module {
 public:
  // `model` outlives it. `first_mixer`: mixers of the layers before it.
  DecoderLayer(const DecoderSpec& model, size_t layer, size_t first_mixer, Rank rank);
  // If `delta`, act.normed holds a value still to be added to the residual stream; on return it
  // does if leaves_delta().
  bool leaves_delta(const Context& context, int64_t rows) const {
    if (scalar_ != nullptr || altup_ != nullptr || branches_.empty()) return false;
    const Branch& last = branches_.back();
    return last.stream_norm == nullptr && last.mix == nullptr &&
           !adds(branches_.size() - 1, context, rows);
  }
  void forward(const Context& context, const Batch& batch, const Activations& act,
               bool delta) const;
  bool waits(const Kernels& kernels) const;           // forward() for the stream
  std::vector<KvScaleNames> kv_scale_names() const;   // of each mixer; a state has none
  std::vector<std::vector<KvSpec>> kv_specs() const;  // of each mixer

 private:
  struct Branch {
    BranchInput input = BranchInput::stream;
    const StreamReader* mix = nullptr;      // or none, where there is one stream
    const Norm* norm = nullptr;             // or none
    const InputGate* input_gate = nullptr;  // or none
    const Mixer* mixer = nullptr;           // or
    const Mlp* mlp = nullptr;               // or
    const Experts* experts = nullptr;
    const Norm* output_norm = nullptr;  // or none
    const Norm* stream_norm = nullptr;  // or none
    const Norm* sum_norm = nullptr;     // or none
    float input_multiplier = 1;
    float multiplier = 1;
    float sum_multiplier = 1;
    bool adds_input = false;
    bool norms_stream = false;
    float stream_multiplier = 1;
    bool late = false;
    size_t caches = 0;  // of a mixer: its number in the model
  };
  template <class Spec>
  Branch& add_branch(const Spec& spec, const DecoderSpec& model, int64_t layer);
  void add_mlp(const MlpBranch& spec, const DecoderSpec& model, int64_t layer, Rank rank);
  void check_beside(BranchInput input) const;
  void check_branches() const;
  const Norm* add_norm(const NormSpec& spec, int64_t layer);
  const StreamReader* add_mix(const StreamMixSpec& spec, const DecoderSpec& model, int64_t layer);
  void compute(const Branch& branch, const Context& context, const Batch& batch,
               const Activations& act, const RowsIn& from, const RowsOut& to) const;
  bool compute_both(const Branch& branch, const Branch& other, const Context& context,
                    const Batch& batch, const Activations& act) const;
  void end_altup(const Context& context, const Batch& batch, const Activations& act) const;
  // Returns whether a branch's last product is added to the residual stream at once.
  bool adds(size_t branch, const Context& context, int64_t rows) const;

  int64_t hidden_size_;
  std::vector<Branch> branches_;
  const AltUpLayer* altup_ = nullptr;  // or none
  const Param* scalar_ = nullptr;
};

// The root module. Its units, in the order of a sweep: the embedding, each layer, the norm and
// head. A stage of a pipeline has some of them.
class CausalLM : public Module {
 public:
  // Refuses (Error usage) a rank count that does not divide the heads.
  CausalLM(DecoderSpec spec, Rank rank, Stage stage = {});

  const DecoderSpec& spec() const { return spec_; }  // of all layers
  Rank rank() const { return rank_; }
  const Stage& stage() const { return stage_; }
  Share layers() const { return layers_of(stage_.number); }  // that this stage has
  std::span<Module* const> units() const { return units_; }
  // The ALiBi slopes of this rank's heads; empty: scores have none.
  std::vector<float> alibi_slopes() const;
  // The specs of this rank's share of each mixer of a stage, in the order of its layers; layers
  // that they share keys with are counted from the stage's first.
  using MixerSpecs = std::vector<std::vector<KvSpec>>;
  const MixerSpecs& kv_specs() const { return stages_[static_cast<size_t>(stage_.number)]; }
  std::span<const MixerSpecs> kv_specs_of_stages() const { return stages_; }

  std::vector<KvScaleNames> kv_scale_names() const;  // of each mixer of this stage
  // The checkpoint's scales of each of these mixers for an FP8 KV cache; empty: each token and head
  // has its own.
  std::span<const KvScales> kv_scales() const { return kv_scales_; }
  void use_kv_scales(std::vector<KvScales> scales);

  // Computes one unit before the head; units are computed in order. The last one is the final norm,
  // or the projection of what it makes; or a stage's last layer, whose output is then in
  // act.passed_on().
  size_t forward_units() const { return forward_units_; }
  void forward(const Context& context, const Batch& batch, const Activations& act,
               size_t unit) const;
  // The result of the last one [rows, spec().output_size()].
  Tensor hidden(const Activations& act, int64_t rows) const;
  // Returns whether forward() of a unit waits for the stream, so that no graph can be made of it,
  // with the weights where they are now.
  bool waits(const Kernels& kernels, size_t unit) const;
  bool has_head() const { return spec_.has_head; }  // on the last stage
  // Computes this rank's part of the logits [rows, head_cols()] of rows of the final norm's output:
  // tokens head_share(), then padding.
  void logits(const Context& context, Tensor hidden, Tensor logits) const;
  int64_t head_cols() const;
  Share head_share(int rank) const { return vocabulary_.share({rank, rank_.size}); }
  // Columns of all ranks' logits, on the stage that computes them and the one that samples, which
  // is the first; those past vocab_size are padding.
  int64_t logits_cols() const;
  // Tells that weights are in groups (quant/groups.h), which need more scratch.
  void use_grouped_weights() { grouped_weights_ = true; }
  // Bounds of the kernels' scratch for steps of at most max_rows rows.
  WorkspaceNeeds workspace_needs(int64_t max_rows) const;

 private:
  Share layers_of(int stage) const;
  void add_layers();
  void add_end();
  // Returns whether act.normed() holds a value that is still to be added, before that layer or the
  // end.
  bool delta_before(const Context& context, int64_t rows, size_t layer) const;
  void forward_end(const Context& context, const Activations& act, int64_t rows,
                   const Module& unit) const;

  DecoderSpec spec_;
  Rank rank_;
  Dimension vocabulary_;
  Stage stage_;
  std::vector<MixerSpecs> stages_;
  std::vector<KvScales> kv_scales_;
  bool grouped_weights_ = false;
  size_t forward_units_ = 0;
  const InputEmbedding* embedding_ = nullptr;  // or none
  std::vector<DecoderLayer*> layers_;
  const StreamReader* last_mix_ = nullptr;     // or none
  const AltUpExit* exit_ = nullptr;            // or none
  const Norm* norm_ = nullptr;                 // or none
  const Linear* output_projection_ = nullptr;  // or none
  const Param* head_ = nullptr;                // the embedding's table when tied; or none
  const Param* head_bias_ = nullptr;
  std::vector<Module*> units_;
};

}  // namespace sluice
