// A mixer of a layer as a module: what mixes a token with those before it. MixerSpec
// (mixer_spec.h) says which there are; each is a file here.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
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

// A step, as a mixer sees it.
struct MixerStep {
  const StepRows& rows;
  std::span<const LayerKv> caches;  // of the mixer, as its kv_specs() have them
};

class Mixer : public Module {
 public:
  explicit Mixer(std::string path) : Module(std::move(path)) {}
  // Rows of hidden_size columns → to.y, whole panels wide, which may begin where the input or
  // its norm does.
  virtual void forward(const Context& context, const MixerStep& step, const Activations& act,
                       const RowsIn& from, const RowsOut& to) const = 0;
  // The layer that can add to its output; null: none.
  virtual const Linear* output() const { return nullptr; }
  // This rank's caches of earlier tokens.
  virtual std::vector<KvSpec> kv_specs() const = 0;
  virtual KvScaleNames kv_scale_names() const { return {}; }  // a state has none
};

// The place of a mixer. The model outlives it.
struct MixerPlace {
  const DecoderSpec& model;
  int64_t layer = 0;
  Rank rank;
  std::string name(const std::string& in_layer) const { return name_in_layer(in_layer, layer); }
};

// The one factory of mixers. The spec outlives the mixer.
std::unique_ptr<Mixer> make_mixer(const MixerSpec& spec, const MixerPlace& place);
// Each in the file of its name.
std::unique_ptr<Mixer> make_mixer(const AttentionSpec& spec, const MixerPlace& place);
std::unique_ptr<Mixer> make_mixer(const MlaSpec& spec, const MixerPlace& place);
std::unique_ptr<Mixer> make_mixer(const GatedDeltaNetSpec& spec, const MixerPlace& place);
std::unique_ptr<Mixer> make_mixer(const Mamba2Spec& spec, const MixerPlace& place);
std::unique_ptr<Mixer> make_mixer(const MambaSpec& spec, const MixerPlace& place);
std::unique_ptr<Mixer> make_mixer(const ShortConvolutionSpec& spec, const MixerPlace& place);
std::unique_ptr<Mixer> make_mixer(const SummaryAttentionSpec& spec, const MixerPlace& place);

// Chooses where ranks divide the heads: evenly, or a KV head with its heads is one rank's, and
// ranks have more of these or less. With fewer KV heads than ranks, several have the same one.
// Error(usage) where neither is possible.
void divide_heads(Dimension& heads, const Dimension& kv_heads, Rank rank);

// The same heads in elements of another size.
Dimension resized(const Dimension& heads, int64_t unit);

// Adds the workspace of a mixer with a state: rows of so many columns, and keys of a head's state.
void add_state(int64_t columns, int64_t keys, WorkspaceNeeds& needs);

// Columns of outputs that lie side by side, each part in whole panels.
int64_t padded_columns(int64_t outputs);
int64_t padded_columns(std::span<const Dimension> parts, Rank rank);

// The linear layer of a mixer whose parts have these dimensions.
std::vector<LinearPart> parts_by_rows(const LinearSpec& linear,
                                      std::span<const Dimension> dimensions,
                                      const MixerPlace& place);
// The one part of an output, whose inputs are divided by `heads`.
std::vector<LinearPart> part_by_cols(const LinearSpec& linear, const Dimension& heads,
                                     int64_t outputs, const MixerPlace& place);

}  // namespace sluice
