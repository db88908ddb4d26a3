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
#include "src/models/rope.h"
#include "src/nn/param.h"

namespace sluice {

struct NormSpec {
  std::string name;        // empty: there is none
  NormParams params = {};  // without its bias
  bool bias = false;
  bool weight = true;

  bool exists() const { return !name.empty(); }
};

struct PartSpec {
  std::string source;
  View view = {};        // view of its tensor
  bool stacked = false;  // the tensor has those of all experts, one after the other
  bool bare = false;     // as of LinearPart
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

// The rows that a norm of q and of k takes together.
enum class HeadNorms : uint8_t {
  one,          // each head, by one weight
  each,         // each head, by one of its own: the rows of a tensor
  each_tensor,  // the same, where each is a tensor: "NAME.norms.N"
  row           // all heads as one row
};

// Softmax attention over all tokens before, or a window of them.
struct AttentionSpec {
  std::string name;  // of the module; the scales of an FP8 KV cache are beside it
  Dimension heads;   // of head_dim elements each
  Dimension kv_heads;
  int64_t head_dim = 0;
  int64_t window = 0;  // the last tokens that a token attends to, itself included; 0: all
  float scale = 0;     // of scores; 0: 1 / sqrt(head_dim)
  float soft_cap = 0;  // of scores; 0: none
  float alibi = 0;     // scores have ALiBi's slopes times this; 0: none
  // How queries and keys are rotated by the angles of one of the model's ropes; nullopt: not at
  // all.
  std::optional<RopePairing> rope = RopePairing::halves;
  size_t angles = 0;
  std::optional<size_t> query_angles = {};  // angles of queries, where they differ
  LinearSpec qkv;  // q, k and v; no v where keys are values, and q alone where both are shared
  bool keys_are_values = false;            // before their norm and rope; there is a v_norm then
  std::optional<size_t> shared_with = {};  // the mixer whose keys and values it attends to
  // Norms of q, of k and of v.
  NormSpec q_norm = {};
  NormSpec k_norm = {};
  NormSpec v_norm = {};                   // of each head of v
  HeadNorms head_norms = HeadNorms::one;  // of q and k
  bool norms_after_rope = false;
  bool output_gate = false;  // the last of qkv's parts, of whose sigmoid the output is times
  LinearSpec output;         // one part
};

// The computation of a mixer with a state, from the parts of its input, in the order of StatePart.
enum class StateKind : uint8_t {
  delta,        // the gated delta rule of queries, keys and values, after a convolution of these
  state_space,  // the same without the rule: B is called keys, C queries and x values
  convolution,  // queries * convolution(keys * values), and no recurrence
  selective,    // a state for each channel of the values, after a convolution of these; of its
                // input are only values and gate, the rest is as SelectiveSpec says
};
enum class StatePart : uint8_t { queries, keys, values, gate, decays, steps };

// A causal convolution of the inputs by themselves, with the last width - 1 of them as its state.
struct ConvolutionSpec {
  std::string name;
  int64_t width = 0;
  bool bias = false;
  bool silu = false;
  // Where queries, keys and values begin in its tensors; of StateKind::convolution the values'.
  std::vector<int64_t> first = {};
};

// A selective scan reads more than its values: the steps of each channel, from a few numbers, B
// (called keys) and C (queries). They are made of these.
struct SelectiveSpec {
  int64_t step_rank = 0;
  LinearSpec inputs;                 // three parts: what steps are made of, B and C
  std::vector<NormSpec> norms = {};  // of each of them; empty: none
  LinearSpec steps;                  // one part
};

// A mixer that keeps a state of each sequence, and no keys and values.
struct StateMixerSpec {
  std::string name;
  StateKind kind = StateKind::delta;
  Dimension heads;      // of value_dim elements each; of a selective scan a channel is one
  Dimension key_heads;  // of key_dim elements each, of queries and of keys
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  LinearSpec input;                           // a part each; the first three of a convolution alone
  std::vector<float> input_multipliers = {};  // of each part; empty: none
  ConvolutionSpec convolution;
  // Tensors of a recurrence with a number for each head, and limits, as DecayParams and ScanParams
  // describe them. SelectiveParams describes those of a selective scan, whose steps have no limits.
  std::string log_rates = {};
  std::string step_bias = {};
  std::string skip = {};  // empty: none
  float least_step = 0;
  float most_step = std::numeric_limits<float>::infinity();
  SelectiveSpec selective = {};  // of a selective scan alone
  // The output is silu(gate) * norm(it), or norm(silu(gate) * it).
  NormSpec norm = {};
  int64_t norm_parts = 0;  // which are normed each by itself; 0: each head, by the same weight
  bool gate_first = false;
  LinearSpec output;  // one part
};
// The dimensions of its input's parts.
std::vector<Dimension> part_dimensions(const StateMixerSpec& spec);

struct MlpSpec {
  std::string name;
  Dimension width;
  Activation activation = Activation::silu;
  std::vector<std::string> values = {};  // tensors of one element that the activation takes
  float gate_multiplier = 1;             // of what the activation is taken of
  LinearSpec up;  // gate and up: activation(gate) * up; or one part: activation(it)
  bool times_layer_input = false;  // activation(it) * the layer's input of the token
  LinearSpec down;                 // one part
};

// Many MLPs, of which a router chooses some for each token, and perhaps one that all tokens have:
// the sum of the chosen ones' outputs times their weights, and of that one's.
struct ExpertsSpec {
  std::string name;  // of the module
  int64_t count = 0;
  LinearSpec router;  // one part, of `count` outputs
  RouterParams choice = {};
  std::string choice_bias = {};  // the tensor that is choice.bias; empty: none
  MlpSpec expert;
  // Tensors of all experts' gate and up, and of their down, that some checkpoints have in the place
  // of the experts' own; without ".weight". Empty: none has.
  std::string stacked_gate_up = {};
  std::string stacked_down = {};
  std::optional<MlpSpec> shared = {};
  std::string shared_gate = {};  // of one output, whose sigmoid is the weight of `shared`; or none
};

// A branch reads the residual stream through its norm, or as it is, and what it computes is added
// to the stream, through a norm of its own if there is one, and times its multiplier. A branch that
// takes the layer's input stands beside the branch before it; without a norm it reads what that one
// reads.
enum class BranchInput : uint8_t { stream, layer_input };

struct MixerBranch {
  BranchInput input = BranchInput::stream;
  NormSpec norm;
  float input_multiplier = 1;
  AttentionSpec attention = {};
  std::optional<StateMixerSpec> state = {};  // in the place of attention
  NormSpec output_norm = {};
  float multiplier = 1;
  NormSpec stream_norm = {};  // of the stream, once the output is added
};

struct MlpBranch {
  BranchInput input = BranchInput::stream;
  NormSpec norm;
  MlpSpec mlp = {};
  std::optional<ExpertsSpec> experts = {};  // in the place of mlp
  NormSpec output_norm = {};
  float multiplier = 1;
  NormSpec stream_norm = {};
};

// Mixers, then MLPs; either may be none.
struct LayerSpec {
  std::string name;
  std::vector<MixerBranch> mixers;
  std::vector<MlpBranch> mlps;
  std::string scalar = {};  // a tensor that the stream is multiplied by at the end; empty: none
};

// The input of each layer from each token, beside the residual stream: a part of a row of a table,
// and of a projection of the embedding, which has a norm.
struct LayerInputsSpec {
  std::string table;
  std::string projection;
  NormSpec norm;
  int64_t width = 0;  // of a layer's part
  float table_multiplier = 1;
  float projection_multiplier = 1;  // before the norm
  float multiplier = 1;             // of the sum
};

struct DecoderSpec {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t max_positions = 0;      // context that the model was trained with
  std::vector<RopeConfig> ropes;  // none: no layer rotates

  std::string embedding = "model.embed_tokens";
  float embedding_multiplier = 1;
  // Row size of an embedding table, and of the head's inputs, that is smaller than the residual
  // stream: a first matrix makes the stream of the rows, a second one the head's inputs. 0: equal.
  int64_t embedding_size = 0;
  std::string input_projection = {};
  std::string output_projection = {};
  NormSpec embedding_norm = {};
  std::optional<LayerInputsSpec> layer_inputs = {};
  // A table with a row for each position, which is added to the token's; empty: none. Position 0
  // has the row `first_position`.
  std::string positions = {};
  int64_t first_position = 0;
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
  // Prefixes under which checkpoints have these names: the one that they are declared with, and
  // others in its place.
  std::vector<std::string> prefixes;

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
  // Whether the result of a token depends on the length of its sequence.
  bool depends_on_length() const {
    return std::ranges::any_of(ropes, &RopeConfig::depends_on_length);
  }
};

// Calls visit(MlpSpec&) with those that a branch has: its own, or an expert's and the shared one.
template <class Branch, class Visit>
void each_mlp(Branch& branch, Visit&& visit) {
  if (!branch.experts) return visit(branch.mlp);
  visit(branch.experts->expert);
  if (branch.experts->shared) visit(*branch.experts->shared);
}

// Where a module is: its layer, and its expert if the layer has experts.
struct ModulePlace {
  int64_t layer = 0;
  std::optional<int64_t> expert = {};
};
// `name` there.
std::string name_at(const std::string& name, ModulePlace place);
inline std::string name_in_layer(const std::string& name, int64_t layer) {
  return name_at(name, {layer});
}

// Calls visit(NormSpec&) with all that the model has.
template <class Visit>
void each_norm(DecoderSpec& spec, Visit&& visit) {
  auto visit_one = [&](NormSpec& norm) {
    if (norm.exists()) visit(norm);
  };
  for (LayerSpec& layer : spec.kinds) {
    for (MixerBranch& m : layer.mixers) {
      for (NormSpec* norm : {&m.norm, &m.attention.q_norm, &m.attention.k_norm, &m.attention.v_norm,
                             &m.output_norm, &m.stream_norm})
        visit_one(*norm);
      if (!m.state) continue;
      visit_one(m.state->norm);
      for (NormSpec& norm : m.state->selective.norms) visit_one(norm);
    }
    for (MlpBranch& m : layer.mlps) {
      for (NormSpec* norm : {&m.norm, &m.output_norm, &m.stream_norm}) visit_one(*norm);
    }
  }
  if (spec.layer_inputs) visit_one(spec.layer_inputs->norm);
  for (NormSpec* norm : {&spec.embedding_norm, &spec.norm}) visit_one(*norm);
}

// Puts `to` in the place of `from` in all names that begin with it.
void replace_prefix(DecoderSpec& spec, std::string_view from, std::string_view to);

}  // namespace sluice
