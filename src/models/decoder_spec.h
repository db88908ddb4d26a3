// A decoder as data: made from config.json by a family's file, and built into modules by decoder.h.
// Names are those of the checkpoint's tensors, without ".weight"; in a layer's names "{}" stands
// for the number of the layer, and in an expert's "{e}" for that of the expert.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kernels.h"
#include "src/models/fields.h"
#include "src/models/mixers/mixer_spec.h"
#include "src/models/rope.h"
#include "src/nn/param.h"

namespace sluice {

struct MlpSpec {
  std::string name;
  Dimension width;
  Activation activation = Activation::silu;
  float limit = 0;  // of a clamped SwiGLU, and its alpha
  float alpha = 0;
  std::vector<std::string> values = {};  // tensors of one element that the activation takes
  float gate_multiplier = 1;             // of what the activation is taken of
  // Standard deviations above the mean of a row of that, by which what is less is 0, and the rest
  // is lower; nullopt: all stays.
  std::optional<float> cut = {};
  LinearSpec up;  // gate and up: activation(gate) * up; or one part: activation(it)
  bool times_layer_input = false;  // activation(it) * the layer's input of the token
  NormSpec inner_norm = {};        // of what `down` takes
  LinearSpec down;                 // one part
  bool operator==(const MlpSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.name, s.values, s.up, s.inner_norm, s.down);
  }
};

// The weights by which a branch reads the residual streams, and writes to them (StreamMix).
struct StreamMixSpec {
  std::string name;    // of the module; empty: there is none
  std::string logits;  // the tensors, without ".weight"
  std::string scales;
  std::string biases;
  bool exists() const { return !name.empty(); }
  bool operator==(const StreamMixSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.name, s.logits, s.scales, s.biases);
  }
};

// Several residual streams, each hidden_size wide, that all begin with the embedding. Every branch
// has a mix then, and is added to them by it; the model's norm reads what `last` makes of them.
struct StreamsSpec {
  int64_t count = 1;
  int64_t iterations = 0;  // as of StreamMix
  float eps = 0;
  float norm_eps = 0;
  StreamMixSpec last = {};
  bool operator==(const StreamsSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.last);
  }
};

// Many MLPs, of which a router chooses some for each token, and perhaps one that all tokens have:
// the sum of the chosen ones' outputs times their weights, and of that one's.
struct ExpertsSpec {
  std::string name;  // of the module
  int64_t count = 0;
  int64_t identities =
      0;               // further choices of the router, which have no weights and give their input
  bool whole = false;  // each expert is one rank's; else each rank has a part of it
  LinearSpec router;   // one part, of choices() outputs
  RouterParams choice = {};
  std::string choice_bias = {};     // the tensor that is choice.bias; empty: none
  std::string choice_factors = {};  // the tensor that is choice.factors; empty: none
  std::string choice_table = {};    // the tensor that is choice.table; empty: none
  // The weight of a norm through which the router reads the residual stream, in
  // the place of the experts' input; empty: it reads what they do. Its logits
  // are then multiplied.
  std::string stream_scale = {};
  NormParams stream_norm = {};
  float logit_multiplier = 1;
  float logit_soft_cap = 0;   // after the multiplier; 0: none
  bool weighs_input = false;  // the weights of a row's experts are those of their input
  // Elements of the rows that experts read and make: `latent_in` makes them of their input, and
  // `latent_out` their sum as wide as that. 0: they are as wide, and there are no such matrices.
  int64_t latent_size = 0;
  LinearSpec latent_in = {};  // each one part
  LinearSpec latent_out = {};
  MlpSpec expert;
  // Tensors of all experts' gate and up, and of their down, that some checkpoints have in the place
  // of the experts' own; without ".weight". Empty: none has.
  std::string stacked_gate_up = {};
  std::string stacked_down = {};
  // Tensors of all experts' gates, of their ups, and of their downs, that GGUF has in the place of
  // what the family stacks in another way. Empty: it has the experts' own.
  std::vector<std::string> stacks_apart = {};
  std::optional<MlpSpec> shared = {};
  std::string shared_gate = {};  // of one output, whose sigmoid is the weight of `shared`; or none
  int64_t choices() const { return count + identities; }
  // Experts that a rank has, or has parts of.
  Share share(Rank rank) const {
    return whole ? Dimension{.size = count}.share(rank) : Share{0, count};
  }
  bool operator==(const ExpertsSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.name, s.router, s.choice_bias, s.choice_factors, s.choice_table, s.stream_scale,
          s.latent_in, s.latent_out, s.expert, s.stacked_gate_up, s.stacked_down, s.stacks_apart,
          s.shared, s.shared_gate);
  }
};

// x * sigmoid(up(silu(down(x)))), of what a branch reads.
struct GateSpec {
  std::string name;  // of the module; no name: there is none
  int64_t rank = 0;  // outputs of `down`
  LinearSpec down;   // each one part
  LinearSpec up;

  bool exists() const { return !name.empty(); }
  bool operator==(const GateSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.name, s.down, s.up);
  }
};

// A branch reads the residual stream through its norm, or as it is, and what it computes is added
// to the stream, through a norm of its own if there is one, and times its multiplier. A branch that
// takes the layer's input stands beside the branch before it; without a norm it reads what that one
// reads. The last one of a layer with several streams (AltUpSpec) may read the one that the layer
// has computed, and is added to the others.
enum class BranchInput : uint8_t { stream, layer_input, computed };

struct MixerBranch {
  BranchInput input = BranchInput::stream;
  StreamMixSpec mix = {};
  NormSpec norm;
  bool norms_stream = false;    // the stream is what the norm gives, and
  float stream_multiplier = 1;  // is multiplied once the branch has read it
  GateSpec input_gate = {};     // of what the norm gives
  float input_multiplier = 1;
  MixerSpec mixer = AttentionSpec{};
  NormSpec output_norm = {};
  float multiplier = 1;
  NormSpec stream_norm = {};  // of the stream, once the output is added

  // The mixer, which is attention.
  AttentionSpec& attention() { return std::get<AttentionSpec>(mixer); }
  const AttentionSpec& attention() const { return std::get<AttentionSpec>(mixer); }
  bool operator==(const MixerBranch&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.mix, s.norm, s.input_gate, s.mixer, s.output_norm, s.stream_norm);
  }
};

struct MlpBranch {
  BranchInput input = BranchInput::stream;
  StreamMixSpec mix = {};
  std::optional<size_t> behind = {};  // the mixer of the layer that it comes behind; nullopt: all
  NormSpec norm;
  bool norms_stream = false;
  float stream_multiplier = 1;
  GateSpec input_gate = {};
  MlpSpec mlp = {};
  std::optional<ExpertsSpec> experts = {};  // in the place of mlp
  bool adds_input = false;  // what it reads is added, too; with a branch that it is beside
  NormSpec output_norm = {};
  float multiplier = 1;
  float sum_multiplier = 1;  // of the stream, once both are added
  NormSpec stream_norm = {};
  bool late = false;       // with another beside it: its output is added at the end of the layer
  NormSpec sum_norm = {};  // of the sum of its output and that of the branch that it is beside

  bool operator==(const MlpBranch&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.mix, s.norm, s.input_gate, s.output_norm, s.stream_norm, s.sum_norm);
    if (s.experts) {
      visit(*s.experts);
    } else {
      visit(s.mlp);
    }
  }
};

// Mixers, then MLPs, but for those that come behind a mixer; either may be none.
struct LayerSpec {
  std::string name;
  std::vector<MixerBranch> mixers;
  std::vector<MlpBranch> mlps;
  std::string scalar = {};  // a tensor that the stream is multiplied by at the end; empty: none
  bool operator==(const LayerSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.name, s.mixers, s.mlps, s.scalar);
  }
};

// The input of each layer from each token, beside the residual stream: a part of a row of a table,
// and of a projection of the embedding, which has a norm.
struct LayerInputsSpec {
  std::string table;
  std::string projection;
  NormSpec norm;
  int64_t width = 0;  // of a layer's part
  int64_t rows = 0;   // of the table; tokens behind them have its first
  float table_multiplier = 1;
  float projection_multiplier = 1;  // before the norm
  float multiplier = 1;             // of the sum
  bool operator==(const LayerInputsSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.table, s.projection, s.norm);
  }
};

// Several residual streams (AltUp, arXiv:2301.13310). A layer predicts each of all, computes one,
// and corrects each by what that has become. The first stream begins with the embedding, and each
// other with a product of it; in the end products of the others are added to the first, and all
// have the mean square of the first.
struct AltUpSpec {
  int64_t count = 0;
  int64_t computed = 0;
  std::vector<std::string> entries;  // matrices, of all streams but the first
  std::vector<std::string> exits;
  // Names in a layer. The router's tanh of a normed stream are the inputs of what predicts, and of
  // what corrects.
  NormSpec router_norm;
  std::string router;
  std::string predictions;
  std::string corrections;
  std::string scale = {};  // a vector that the last branch's input is multiplied by; empty: none
  bool operator==(const AltUpSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.entries, s.exits, s.router_norm, s.router, s.predictions, s.corrections, s.scale);
  }
};

// The beginning of tensors' names, and another one that some checkpoints have in its place, in all
// layers.
struct OtherName {
  std::string name;
  std::string other;
  bool operator==(const OtherName&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.name, s.other);
  }
};

struct DecoderSpec {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t max_positions = 0;      // context that the model was trained with
  std::vector<RopeConfig> ropes;  // none: nothing has angles

  std::string embedding = "model.embed_tokens";
  float embedding_multiplier = 1;
  // Rows of the embedding's table, where they are more than the vocabulary; 0: as many.
  int64_t table_rows = 0;
  // Row size of an embedding table, and of the head's inputs, that is smaller than the residual
  // stream: a first matrix makes the stream of the rows, a second one the head's inputs. 0: equal.
  int64_t embedding_size = 0;
  std::string input_projection = {};
  std::string output_projection = {};
  NormSpec embedding_norm = {};
  std::optional<LayerInputsSpec> layer_inputs = {};
  StreamsSpec streams = {};
  std::optional<AltUpSpec> altup = {};
  // A table with a row for each position, which is added to the token's; empty: none. Position 0
  // has the row `first_position`.
  std::string positions = {};
  int64_t first_position = 0;
  // The rope whose sines, then cosines, are added to the token's row; nullopt: none are.
  std::optional<size_t> sinusoids = {};
  std::vector<LayerSpec> kinds;
  std::vector<size_t> layers;  // the kind of each
  NormSpec norm;
  std::string head = "lm_head";
  bool has_head = true;  // else there are no logits, and the model makes embeddings alone
  bool head_bias = false;
  float logit_multiplier = 1;
  float logit_soft_cap = 0;  // after the multiplier; 0: none

  bool tie_word_embeddings = false;  // where the checkpoint is known: as its tensors have it
  // The table is read from the head's tensor, as there is no other.
  bool embedding_from_head = false;

  std::vector<std::string> ignorable = {};  // patterns of tensors that checkpoints may have
  std::vector<OtherName> other_names = {};
  // Prefixes under which checkpoints have these names: the one that they are declared with, and
  // others in its place.
  std::vector<std::string> prefixes;

  bool operator==(const DecoderSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.embedding, s.input_projection, s.output_projection, s.embedding_norm, s.layer_inputs,
          s.streams, s.altup, s.positions, s.kinds, s.norm, s.head, s.ignorable, s.other_names);
  }
  // Columns of the residual streams together.
  int64_t stream_columns() const { return streams.count * hidden_size; }
  // Columns of the embedding, and of what is computed in the end.
  int64_t output_size() const { return embedding_size > 0 ? embedding_size : hidden_size; }
  const LayerSpec& layer(size_t i) const { return kinds[layers[i]]; }
  // Positions that it is made for: max_positions, or what a rope's scaling extends them to.
  int64_t usable_positions() const;
  // The columns of a step's cos and sin: of one rope's angles, and of all.
  Share angle_columns(size_t rope) const;
  int64_t angle_columns() const;
  // Positions beyond these have no meaning.
  std::optional<int64_t> most_positions() const {
    return positions.empty() ? std::nullopt : std::optional(max_positions);
  }
  // A sequence that becomes longer than this is computed again, as its keys' angles are no longer
  // those of its length; nullopt: none is.
  std::optional<int64_t> keys_end() const {
    auto rope = std::ranges::find_if(ropes, &RopeConfig::keys_follow);
    return rope == ropes.end() ? std::nullopt : std::optional(rope->original_positions);
  }
  // Tells whether the result of a token depends on the length of its sequence.
  bool depends_on_length() const {
    return std::ranges::any_of(ropes, &RopeConfig::depends_on_length);
  }
};

// A module's place: its layer, and its expert if the layer has experts.
struct ModulePlace {
  int64_t layer = 0;
  std::optional<int64_t> expert = {};
  int64_t stack = 0;  // View::stack of tensors of all experts
};
// `name` there.
std::string name_at(const std::string& name, ModulePlace place);
inline std::string name_in_layer(const std::string& name, int64_t layer) {
  return name_at(name, {layer});
}

// Calls visit(NormSpec&) with all norms that the model has.
template <class Visit>
void each_norm(DecoderSpec& spec, Visit&& visit) {
  each<NormSpec>(spec, [&](NormSpec& norm) {
    if (norm.exists()) visit(norm);
  });
}

// Puts `to` in the place of `from` in all names that begin with it.
void replace_prefix(DecoderSpec& spec, std::string_view from, std::string_view to);

}  // namespace sluice
