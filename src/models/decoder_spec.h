// A decoder as data: what a family's file makes of config.json, and what decoder.h builds modules
// from. Names are those of the checkpoint's tensors, without ".weight"; in a layer's names "{}"
// stands for the number of the layer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "src/models/rope.h"
#include "src/nn/param.h"

namespace sluice {

struct NormSpec {
  std::string name;
  NormParams params = {};  // without its bias
  bool bias = false;
};

struct PartSpec {
  std::string source;
  View view = {};  // of its tensor
};

// Parts with one input; neighbours become one product.
struct LinearSpec {
  std::string name;  // of the module
  std::vector<PartSpec> parts;
  bool bias = false;
};

// A layer that is one tensor, under its own name.
inline LinearSpec one_linear(const std::string& name, bool bias, bool transposed = false) {
  return {name, {{name, {.transposed = transposed}}}, bias};
}

// Softmax attention over all tokens before, or a window of them.
struct AttentionSpec {
  std::string name;  // of the module; the scales of an FP8 KV cache are beside it
  Dimension heads;   // of head_dim elements each
  Dimension kv_heads;
  int64_t head_dim = 0;
  int64_t window = 0;  // the last tokens that a token attends to, itself included; 0: all
  // How queries and keys are rotated by the model's angles; nullopt: not at all.
  std::optional<RopePairing> rope = RopePairing::halves;
  LinearSpec qkv;  // three parts
  // Of each head of q and of k, before rope; nullopt: none.
  std::optional<NormSpec> q_norm = {};
  std::optional<NormSpec> k_norm = {};
  LinearSpec output;  // one part
};

struct MlpSpec {
  std::string name;
  Dimension width;
  Activation activation = Activation::silu;
  LinearSpec up;    // gate and up: activation(gate) * up; or one part: activation(it)
  LinearSpec down;  // one part
};

// A branch reads the residual stream through its norm, and what it computes is added to the stream.
// One that takes the layer's input stands beside the branch before it.
enum class BranchInput : uint8_t { stream, layer_input };

struct MixerBranch {
  NormSpec norm;
  AttentionSpec attention;
};

struct MlpBranch {
  BranchInput input = BranchInput::stream;
  NormSpec norm;
  MlpSpec mlp;
};

// Mixers, then MLPs; either may be none.
struct LayerSpec {
  std::string name;
  std::vector<MixerBranch> mixers;
  std::vector<MlpBranch> mlps;
};

struct DecoderSpec {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t max_positions = 0;       // that the model was trained with
  std::optional<RopeConfig> rope;  // none: no layer rotates

  std::string embedding = "model.embed_tokens";
  // A table with a row for each position, which is added to the token's; empty: none.
  std::string positions = {};
  std::vector<LayerSpec> kinds;
  std::vector<size_t> layers;  // the kind of each
  NormSpec norm;
  std::string head = "lm_head";
  bool head_bias = false;

  bool tie_word_embeddings = false;  // where the checkpoint is known: as its tensors have it
  // The table is read from the head's tensor, as there is no other.
  bool embedding_from_head = false;

  // Prefixes under which checkpoints have these names: the one that they are declared with, and
  // others in its place.
  std::vector<std::string> prefixes;

  const LayerSpec& layer(size_t i) const { return kinds[layers[i]]; }
  // Positions that it is made for: max_positions, or what the rope's scaling extends them to.
  int64_t usable_positions() const { return rope ? rope->usable_positions() : max_positions; }
  // Positions beyond these have no meaning.
  std::optional<int64_t> most_positions() const {
    return positions.empty() ? std::nullopt : std::optional(max_positions);
  }
  // What a token computes depends on how long its sequence is.
  bool depends_on_length() const { return rope && rope->depends_on_length(); }
};

// `name` for one layer.
std::string name_in_layer(const std::string& name, int64_t layer);

// Puts `to` in the place of `from` in all names that begin with it.
void replace_prefix(DecoderSpec& spec, std::string_view from, std::string_view to);

}  // namespace sluice
