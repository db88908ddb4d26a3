// Mixers as data: what mixes a token with those before it in a layer. Each has a struct here, and a
// file of src/models/mixers that computes it.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "kernels/kernels.h"
#include "src/models/fields.h"
#include "src/nn/param.h"

namespace sluice {

// Equality of what a config says of a norm, and of a router.
inline bool operator==(const NormParams& a, const NormParams& b) {
  return std::tie(a.eps, a.kind, a.weight_offset) == std::tie(b.eps, b.kind, b.weight_offset);
}
inline bool operator==(const RouterParams& a, const RouterParams& b) {
  const auto all = [](const RouterParams& p) {
    return std::tie(p.score, p.top_k, p.chooses_logits, p.groups, p.top_k_groups,
                    p.groups_by_largest, p.normalized, p.added, p.factor, p.jitter);
  };
  return all(a) == all(b);
}

struct NormSpec {
  std::string name;        // empty: there is none
  NormParams params = {};  // without its bias
  bool bias = false;
  bool weight = true;

  bool exists() const { return !name.empty(); }
  bool operator==(const NormSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.name);
  }
};

struct PartSpec {
  std::string source;
  View view = {};        // view of its tensor
  bool stacked = false;  // the tensor has those of all experts, one after the other
  bool bare = false;     // as of LinearPart
  bool operator==(const PartSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.source);
  }
};

// Parts with one input; neighbours become one product.
struct LinearSpec {
  std::string name;  // of the module
  std::vector<PartSpec> parts;
  bool bias = false;
  bool operator==(const LinearSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.name, s.parts);
  }
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

// Columns of a step's matrices that a mixer needs: what its input's products are, and its output.
struct MixerWidths {
  int64_t inputs = 0;
  int64_t output = 0;
  int64_t chosen = 0;  // positions of a row, where they are chosen
};

// Softmax attention over all tokens before, or a window of them.
struct AttentionSpec {
  std::string name;  // of the module; the scales of an FP8 KV cache are beside it
  Dimension heads;   // of head_dim elements each
  Dimension kv_heads;
  int64_t head_dim = 0;
  int64_t value_dim = 0;  // elements of a head's values; 0: as many
  int64_t window = 0;     // the last tokens that a token attends to, itself included; 0: all
  int64_t chunk = 0;      // it attends to none before the last multiple of this; 0: to all
  float scale = 0;        // of scores; 0: 1 / sqrt(head_dim)
  float soft_cap = 0;     // of scores; 0: none
  float alibi = 0;        // scores have ALiBi's slopes times this; 0: none
  // Rotation of queries and keys by the angles of one of the model's ropes;
  // nullopt: none.
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
  NormSpec output_norm = {};              // of all heads' outputs as one row
  bool norms_after_rope = false;
  float clip =
      0;  // q, k and v are clamped to [-clip, clip] after norms, before rope; 0: they are not
  // The output is multiplied by this function of qkv's last part, which has a number for each
  // element of it, or for each head; nullopt: it is not.
  std::optional<Activation> output_gate = {};
  bool gates_heads = false;
  // The tensor of the heads' sinks: logits that take part in the softmax and
  // bring no value; empty: none.
  std::string sinks = {};
  LinearSpec output;  // one part

  int64_t of_value() const { return value_dim > 0 ? value_dim : head_dim; }
  MixerWidths widths(Rank rank) const;
  // Chooses where ranks divide it. Error(usage) where they cannot.
  void divide(Rank rank);
  void add_workspace(Rank rank, WorkspaceNeeds& needs) const;
  bool operator==(const AttentionSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.name, s.qkv, s.q_norm, s.k_norm, s.v_norm, s.output_norm, s.sinks, s.output);
  }
};

// Chooses the positions that a token attends to (arXiv:2512.02556, 2.1): its queries are products
// of those of lower rank, its keys, which have a norm, and the weights of its heads of the input.
struct IndexerSpec {
  int64_t heads = 0;
  int64_t head_dim = 0;  // the first elements of each are rotated
  LinearSpec query;      // each one part
  LinearSpec key;
  NormSpec key_norm = {};
  LinearSpec weights;
  RopePairing rope = RopePairing::neighbours;

  bool operator==(const IndexerSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.query, s.key, s.key_norm, s.weights);
  }
};

// Multi-head latent attention (MLA, arXiv:2405.04434): all heads' keys and
// values are products of one latent vector a token, which the cache has, and of
// a key that is rotated and that all heads share. The products are absorbed
// into queries and outputs. A head's query is [nope, rope].
struct MlaSpec {
  std::string name;
  int64_t heads = 0;
  int64_t nope_dim = 0;
  int64_t rope_dim = 0;
  int64_t value_dim = 0;
  int64_t rank = 0;            // of the latent vectors
  int64_t query_rank = 0;      // 0: queries are products of the input
  LinearSpec query_down = {};  // one part, with query_rank alone
  NormSpec query_norm = {};
  float query_multiplier = 1;    // of the normed vectors of lower rank
  bool queries_of_both = false;  // of these vectors as they are, too, behind the normed ones
  LinearSpec query = {};         // one part
  LinearSpec kv_down;            // one part: the latent vector, then the shared key
  NormSpec kv_norm = {};
  float latent_multiplier = 1;    // of the normed latent vectors
  NormSpec shared_key_norm = {};  // before rope
  PartSpec keys;                  // nope_dim rows of each head
  PartSpec values;                // value_dim rows of each head
  bool transposed_keys = false;   // there are `rank` rows of nope_dim elements in their place
  // One part, with a number for each head, or for each element of its values, whose sigmoid they
  // are multiplied by; no name: they are not.
  LinearSpec gate = {};
  bool gates_elements = false;
  bool gate_of_queries = false;                               // it is a product of what queries are
  LinearSpec output;                                          // one part
  float scale = 0;                                            // of scores
  std::optional<RopePairing> rope = RopePairing::neighbours;  // nullopt: nothing is rotated
  int64_t window = 0;                                         // as AttentionSpec has it
  size_t angles = 0;
  size_t query_angles = 0;                 // of queries, which may grow with their position
  std::optional<size_t> nope_angles = {};  // zeros, by which the other part of them grows, too
  // The most positions that a token attends to, as the indexer chooses them; without an indexer as
  // the layer before has chosen. 0: it attends to all.
  int64_t chosen = 0;
  std::optional<IndexerSpec> indexer = {};

  int64_t query_dim() const { return nope_dim + rope_dim; }
  int64_t key_dim() const { return rank + rope_dim; }
  int64_t query_inputs() const { return queries_of_both ? 2 * query_rank : query_rank; }
  Dimension gates() const { return head_rows(gates_elements ? value_dim : 1); }
  Dimension head_rows(int64_t each) const { return {.size = heads * each, .unit = each}; }
  MixerWidths widths(Rank rank) const;
  void divide(Rank rank);
  void add_workspace(Rank rank, WorkspaceNeeds& needs) const;
  bool operator==(const MlaSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.name, s.query_down, s.query_norm, s.query, s.kv_down, s.kv_norm, s.shared_key_norm,
          s.keys, s.values, s.gate, s.output, s.indexer);
  }
};

// Keys that each stand for a window of tokens: values pooled by gates (PoolParams), both of which
// are products of the input, then normed, and their last elements rotated by the window's first
// position.
struct SummarySpec {
  int64_t tokens = 0;  // of a window
  bool overlaps = false;
  int64_t dim = 0;        // of a key
  LinearSpec input;       // values, then gates
  std::string bias = {};  // of gates: [tokens][their columns], without ".weight"
  NormSpec norm = {};
  size_t angles = 0;  // of the first positions of windows

  int64_t columns() const { return overlaps ? 2 * dim : dim; }  // of values, and of gates
  bool operator==(const SummarySpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.input, s.bias, s.norm);
  }
};

// Chooses the windows that a token attends to, by summaries of its own.
struct SummaryIndexerSpec {
  int64_t heads = 0;
  int64_t chosen = 0;  // the most
  SummarySpec keys;
  LinearSpec query;  // each one part: of the queries of lower rank, and of the input
  LinearSpec weights;
  bool operator==(const SummaryIndexerSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.keys, s.query, s.weights);
  }
};

// Attention of one KV head, whose keys are its values, to a window of tokens, and beside them to
// summaries of windows (DeepSeek-V4). The last elements of keys and queries are rotated, and those
// of outputs rotated back. Groups of heads' outputs are each multiplied by a matrix of their own,
// then all together by one.
struct SummaryAttentionSpec {
  std::string name;
  Dimension heads;  // of head_dim elements each
  int64_t head_dim = 0;
  int64_t window = 0;
  int64_t query_rank = 0;
  LinearSpec query_down;  // each one part
  NormSpec query_norm = {};
  LinearSpec query;
  NormSpec head_norm = {};  // of each head's query, without a weight
  LinearSpec key;
  NormSpec key_norm = {};
  std::string sinks;
  size_t angles = 0;
  size_t reversed_angles = 0;
  int64_t groups = 0;  // of heads
  int64_t group_rank = 0;
  std::string group_output;  // [groups * group_rank, heads of a group]
  LinearSpec output;         // one part
  std::optional<SummarySpec> summaries = {};
  std::optional<SummaryIndexerSpec> indexer = {};  // of them

  Dimension group_rows() const;  // of group_output, which ranks divide as they do groups
  MixerWidths widths(Rank rank) const;
  void divide(Rank rank);
  void add_workspace(Rank rank, WorkspaceNeeds& needs) const;
  bool operator==(const SummaryAttentionSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.name, s.query_down, s.query_norm, s.query, s.head_norm, s.key, s.key_norm, s.sinks,
          s.group_output, s.output, s.summaries, s.indexer);
  }
};

// A causal convolution of the inputs by themselves, with the last width - 1 of them as its state.
struct ConvolutionSpec {
  std::string name;
  int64_t width = 0;
  bool bias = false;
  bool silu = false;
  // The first of what it takes in its tensors: queries, keys and values, or values alone.
  std::vector<int64_t> first = {};
  std::vector<std::string> sources = {};  // the tensors of each; empty: `name` has all
  bool operator==(const ConvolutionSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.name, s.sources);
  }
};

// The gated delta rule (arXiv:2412.06464) of queries, keys and values, after a convolution of
// these. Its output is activation(gate) * norm(it).
struct GatedDeltaNetSpec {
  std::string name;
  Dimension heads;      // of value_dim elements each
  Dimension key_heads;  // of key_dim elements each, of queries and of keys
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  LinearSpec input;  // queries, keys, values, gate, decays and steps
  // Gate and decays of the input are of this rank, and products of them are the whole ones. 0: they
  // are whole.
  int64_t rank = 0;
  LinearSpec gate_up = {};  // each one part
  LinearSpec decay_up = {};
  ConvolutionSpec convolution;
  // Tensors with a number for each head, as DecayParams describes them.
  std::string log_rates = {};
  std::string step_bias = {};
  bool negative_rates = false;
  bool tiled = false;        // as ScanParams has it
  bool decays_rows = false;  // a head has a decay for each of its keys (arXiv:2510.26692)
  float decay_floor = 0;     // as DecayParams has it
  float step_multiplier = 1;
  Activation gate = Activation::silu;
  NormSpec norm = {};  // of each head
  LinearSpec output;   // one part

  Dimension decays() const;                // those of a head side by side
  std::array<Dimension, 6> parts() const;  // of the input
  MixerWidths widths(Rank rank) const;
  void divide(Rank rank);
  void add_workspace(Rank rank, WorkspaceNeeds& needs) const;
  bool operator==(const GatedDeltaNetSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.name, s.input, s.gate_up, s.decay_up, s.convolution, s.log_rates, s.step_bias, s.norm,
          s.output);
  }
};

// State-space duality (Mamba-2, arXiv:2405.21060): B is called keys, C queries and x values.
struct Mamba2Spec {
  std::string name;
  Dimension heads;      // of value_dim elements each
  Dimension key_heads;  // groups, of key_dim elements each, of B and of C
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  LinearSpec input;                           // C, B, x, gate and steps
  std::vector<float> input_multipliers = {};  // of each part; empty: none
  ConvolutionSpec convolution;
  // Tensors with a number for each head, and limits, as DecayParams and ScanParams describe them.
  std::string log_rates = {};
  std::string step_bias = {};
  std::string skip = {};  // empty: none
  bool negative_rates = false;
  float least_step = 0;
  float most_step = std::numeric_limits<float>::infinity();
  // The output is silu(gate) * norm(it), or norm(silu(gate) * it).
  NormSpec norm = {};
  int64_t norm_parts = 0;  // which are normed each by itself
  bool gate_first = false;
  LinearSpec output;  // one part

  std::array<Dimension, 5> parts() const;  // of the input
  MixerWidths widths(Rank rank) const;
  void divide(Rank rank);
  void add_workspace(Rank rank, WorkspaceNeeds& needs) const;
  bool operator==(const Mamba2Spec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.name, s.input, s.convolution, s.log_rates, s.step_bias, s.skip, s.norm, s.output);
  }
};

// A selective scan (Mamba, arXiv:2312.00752): a state for each channel of the values, after a
// convolution of these. The steps of each channel are made of a few numbers, and these, B (called
// keys) and C (queries) of the values. Its output is silu(gate) * it.
struct MambaSpec {
  std::string name;
  Dimension channels;
  int64_t key_dim = 0;
  int64_t step_rank = 0;
  LinearSpec input;  // values and gate
  ConvolutionSpec convolution;
  LinearSpec scan_inputs;            // what steps are made of, B and C
  std::vector<NormSpec> norms = {};  // of each of them; empty: none
  LinearSpec steps;                  // one part
  std::string log_rates = {};        // as SelectiveParams describes it
  bool negative_rates = false;
  std::string skip = {};
  LinearSpec output;  // one part

  MixerWidths widths(Rank rank) const;
  void divide(Rank rank);
  void add_workspace(Rank rank, WorkspaceNeeds& needs) const;
  bool operator==(const MambaSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.name, s.input, s.convolution, s.scan_inputs, s.norms, s.steps, s.log_rates, s.skip,
          s.output);
  }
};

// Lightning attention (arXiv:2401.04658): linear attention, without a softmax, whose state fades by
// a share for each head. Queries, keys and values are activations of products of the input. Its
// output is sigmoid(gate) * norm(it).
struct LightningSpec {
  std::string name;
  Dimension heads;   // of queries, keys and values
  LinearSpec input;  // queries, keys, values and gate
  Activation activation = Activation::silu;
  std::vector<float> factors = {};  // of each layer, as DecaySlopes has it
  NormSpec norm = {};               // of all heads as one row
  LinearSpec output;                // one part

  MixerWidths widths(Rank rank) const;
  void divide(Rank rank);
  void add_workspace(Rank rank, WorkspaceNeeds& needs) const;
  bool operator==(const LightningSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.name, s.input, s.norm, s.output);
  }
};

// queries * convolution(keys * values), and no recurrence (LFM2).
struct ShortConvolutionSpec {
  std::string name;
  Dimension channels;
  LinearSpec input;  // queries, keys and values
  ConvolutionSpec convolution;
  LinearSpec output;  // one part

  MixerWidths widths(Rank rank) const;
  void divide(Rank rank);
  void add_workspace(Rank rank, WorkspaceNeeds& needs) const;
  bool operator==(const ShortConvolutionSpec&) const = default;
  template <class Self, class Visit>
  static void fields(Self& s, Visit&& visit) {
    visit(s.name, s.input, s.convolution, s.output);
  }
};

using MixerSpec = std::variant<AttentionSpec, MlaSpec, GatedDeltaNetSpec, Mamba2Spec, MambaSpec,
                               LightningSpec, ShortConvolutionSpec, SummaryAttentionSpec>;

}  // namespace sluice
