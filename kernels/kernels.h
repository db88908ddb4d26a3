// Every operation that a forward pass needs, for one backend. Activations are float32 matrices, one
// row a token; the compute type decides what a linear layer's input is rounded to and what the KV
// cache holds.
//
// Determinism: an output element is summed in one fixed order, whatever the number of rows, threads
// or chunks. So the result for a token does not depend on what else is in the batch.
//
// Shapes are checked by every op (check(): a wrong one is our bug, files were checked before). No
// op allocates: scratch comes from the workspace given at construction.
//
// Weights, activations and the KV cache lie in the device's memory, and ops are work of its stream
// (src/device/device.h); what a step's rows are, upload() brings there.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/kv_cache.h"
#include "kernels/state_cache.h"
#include "quant/encode.h"
#include "quant/format.h"
#include "src/base/check.h"
#include "src/base/tensor.h"
#include "src/base/thread_pool.h"
#include "src/device/host_device.h"

namespace sluice {

enum class Compute : uint8_t { bf16, f32 };
enum class Activation : uint8_t {
  silu,
  gelu,
  gelu_tanh,
  relu,
  relu_squared,  // relu(x)^2
  xielu,         // arXiv:2411.13010, with kXieluValues values of the layer
  sigmoid,
  softplus,
  identity,
  clamped_swiglu,  // gpt-oss: of x = min(x, limit), x * sigmoid(alpha x), times
                   // 1 + clamp(up, limit)
  clamped_silu,    // DeepSeek-V4: silu(min(x, limit)) * clamp(up, limit)
  silu_clamped,    // Step-3.7: min(silu(x), limit) * clamp(up, limit)
};
// Activations that take a limit, and have a factor `up`.
constexpr bool has_limit(Activation a) {
  return a == Activation::clamped_swiglu || a == Activation::clamped_silu ||
         a == Activation::silu_clamped;
}
inline constexpr int64_t kMostParts = 8;  // of rows that mix() adds
// alpha_p and alpha_n, of which softplus is taken, beta and eps.
inline constexpr int64_t kXieluValues = 4;

struct ActivationParams {
  Activation kind = Activation::silu;
  const float* values = nullptr;  // of xielu, in the device's memory
  float limit = 0;                // where has_limit(kind), above 0
  float alpha = 0;                // of clamped_swiglu
};

// Pairs of a head's elements that are rotated together: i and i + half of them
// ("neox", as Llama's rotate_half), or 2 i and 2 i + 1 ("gptj", as in the RoPE
// paper).
enum class RopePairing : uint8_t { halves, neighbours };

// Some consecutive tokens of one sequence that are computed together.
struct SequenceChunk {
  int64_t first_row = 0;  // row of the batch's matrices
  int64_t rows = 0;
  int64_t first_position =
      0;  // of the first row within its sequence; its keys are stored before attention is called
  // Token position / block_size → block. -1: the block lies wholly before what the first row
  // attends to, and is not read.
  std::span<const int32_t> block_table;
};

struct DeviceChunks;

// Places of a step's rows in the KV cache, in the layers of one group.
struct KvRows {
  std::span<const SequenceChunk> chunks;    // cover the rows in order
  std::span<const int64_t> slots;           // [rows]: block * block_size + offset
  const DeviceChunks* on_device = nullptr;  // the chunks after upload(); the backend's
};

// Everything that the launches of a step depend on. Steps of one shape are the same launches on
// other values, which lie in the same places of the device's memory.
struct LaunchShape {
  int64_t rows = 0;
  int64_t longest = 0;  // positions that a sequence has at most
  bool apart = false;   // each row is of a sequence of its own
  auto operator<=>(const LaunchShape&) const = default;
};

// The rows of a step, as ops look them up.
struct StepRows {
  std::span<const int32_t> ids;                  // [rows]
  std::span<const int32_t> host_ids;             // the same in host memory
  std::span<const KvRows> kv;                    // of each group of layers
  Tensor cos, sin;                               // [rows, rope dim / 2]
  std::optional<LaunchShape> launches = {};      // set by upload(); none: launches depend on more
  std::span<const int32_t> positions = {};       // [rows]: its row of a table of positions
  std::span<const int32_t> host_positions = {};  // the same in host memory
  std::span<const float> alibi_slopes = {};      // as AttentionParams has them
};

// The divisor of a norm, per row: the root mean square (arXiv:1910.07467), or the standard
// deviation around the mean, which is subtracted first (arXiv:1607.06450).
enum class NormKind : uint8_t { rms, layer };

struct NormParams {
  float eps = 0;  // added to the mean of squares
  NormKind kind = NormKind::rms;
  float weight_offset = 0;      // added to the weight: 1 where w stands for 1 + w
  const float* bias = nullptr;  // [cols] in the device's memory, added last; null: none
  // For rows that are spread over ranks: the sum of squares of each whole row, in the device's
  // memory, and the columns that it is of (root mean squares only). null: squares of the given
  // columns.
  const float* squares = nullptr;
  int64_t squares_cols = 0;
};

// The norm that rows pass on their way into a linear layer.
struct InputNorm {
  Weight weight;
  NormParams params;
};

// The work that a linear layer does beside its product (Kernels::fused_linear).
struct Fusion {
  std::optional<InputNorm> norm;  // of x
  // The first `width` columns of the product become activation(them) * those from `second` on; 0:
  // none do.
  int64_t width = 0, second = 0;
  ActivationParams activation;
  bool adds = false;  // the product is added to y
};

// The positions that rows attend to, where a layer chooses them (arXiv:2512.02556, 2.1): of each
// row the first min(most, its position + 1), rising.
struct ChosenPositions {
  int32_t* positions = nullptr;  // [rows of the step][most] in the device's memory
  int64_t most = 0;              // 0: rows attend to all
};

// More keys of the same softmax, in a latent cache of their own, whose entries stand for several
// tokens each (KvCache::tokens): a row attends to those of whole windows up to itself, or to what
// is chosen of them.
struct MoreKeys {
  KvCache cache;
  const KvRows* rows = nullptr;  // of the cache's group
  ChosenPositions chosen = {};   // entries
};

// A layer's attention beside softmax(scale * q k^T) v. The score of a query and a key is scale * q
// k, then capped, then with its ALiBi term.
struct AttentionParams {
  float scale = 1;
  int64_t window = 0;  // a token attends to the last `window` tokens, itself included; 0: to all
  int64_t chunk = 0;   // and to none before the last multiple of `chunk` (Llama 4); 0: to all
  float soft_cap = 0;  // scores become soft_cap * tanh(score / soft_cap) (Gemma 2); 0: none
  // Both in the device's memory.
  // [heads], score += slope * (key position - query position) (arXiv:2108.12409); empty: none
  std::span<const float> alibi_slopes = {};
  // [heads], a logit that takes part in the softmax's sum and brings no value (gpt-oss,
  // arXiv:2309.17453); empty: none
  std::span<const float> sinks = {};
  ChosenPositions chosen = {};     // of a latent cache, without a window or a chunk
  const MoreKeys* more = nullptr;  // beside a latent cache of equal elements, of which nothing is
                                   // chosen; null: none
};

inline int64_t first_attended(const AttentionParams& p, int64_t position) {
  return first_attended(p.window, p.chunk, position);
}

// A mixer's states of a step's sequences. Each has a chunk of rows and, in each of the groups, a
// block that is a page of its state. States at position 0 are zeros, whatever the pages hold.
struct StateRows {
  StateCache cache;
  std::span<const KvRows> groups;  // of its pages, in order
};

// A row of the state of a chunk's sequence, where the pages are the host's.
inline float* state_row(const StateRows& state, size_t chunk, int64_t row) {
  const StateCache& c = state.cache;
  const KvRows& group = state.groups[static_cast<size_t>(state_page(c, row))];
  std::byte* page = c.pages + group.chunks[chunk].block_table[0] * c.page_bytes;
  return reinterpret_cast<float*>(page) + state_offset(c, row);
}

// A causal convolution of each column by itself.
struct ConvParams {
  const float* weight = nullptr;  // [cols][width] in the device's memory, of the oldest input first
  const float* bias = nullptr;    // [cols] or null: none
  int64_t width = 0;              // inputs of an output, from 2 to kMostConvWidth
  bool silu = false;              // the output is silu(y)
};
inline constexpr int64_t kMostConvWidth = 16;

// Softmax pooling of each column by itself over windows of so many tokens, from position 0 on: sum
// of softmax(gate + bias) * value, the bias by the token's place in its window. Where windows
// overlap, values and gates have two parts of as many columns: the second counts in the token's own
// window, the first in the one behind it (DeepSeek-V4's compressed keys).
struct PoolParams {
  const float* bias = nullptr;  // [tokens][columns of gates] in the device's memory
  int64_t tokens = 0;
  bool overlaps = false;
  // Rows of the state: largest, sum, weighted values; of overlapping windows three times that.
  int64_t state_rows() const { return overlaps ? 9 : 3; }
};

// Residual streams beside one another, which layers read and write through weights of each row
// (hyper-connections, arXiv:2409.19606; with doubly stochastic weights of streams among themselves:
// DeepSeek-V4). All pointers are into the device's memory.
struct StreamMix {
  int64_t streams = 0;            // at most kMostStreams
  const float* scales = nullptr;  // of the logits of reading, of writing and of mixing
  const float* biases = nullptr;  // of each logit
  float eps = 0;                  // added to weights
  float norm_eps = 0;             // of the root mean square that logits are divided by
  int64_t iterations = 0;         // of Sinkhorn and Knopp
};
inline constexpr int64_t kMostStreams = 8;

// The share of a head's state that is left after a token: exp(-exp(log_rate) step), where step =
// clamp(softplus(x + bias), least, most) (arXiv:2312.00752, arXiv:2412.06464). A head may have
// several shares, with one rate (arXiv:2510.26692). With a floor, the step is
// sigmoid(exp(log_rate) (x + bias)), and exp(floor step) is left.
struct DecayParams {
  const float* log_rates = nullptr;  // [heads] in the device's memory, as the bias
  bool negative_rates = false;       // they are -exp(log_rate) in its place
  const float* bias = nullptr;       // [heads * of_head]
  float least = 0;
  float most = std::numeric_limits<float>::infinity();
  int64_t of_head = 1;
  float floor = 0;  // below 0; 0: there is none
};

// The share of a head's state that is left after a token: exp(-factor 2^(-8 (h + 1) / heads)) of
// head h (arXiv:2401.04658).
struct DecaySlopes {
  int64_t heads = 0;
  int64_t first = 0;  // the head of the first column
  float factor = 1;
};

// A recurrence's inputs. key_heads divide the heads: each serves as many neighbours, or every
// key_heads-th.
struct ScanInputs {
  Tensor queries;  // [n, key_heads * key_dim]
  Tensor keys;     // the same
  Tensor values;   // [n, heads * value_dim]
  Tensor decays;   // [n, heads], a; or [n, heads * key_dim], of each row of the state its own
  Tensor steps;    // [n, heads], b
};
struct ScanParams {
  int64_t key_dim = 0;
  bool tiled = false;           // head h has the keys of head h % key_heads
  bool delta = false;           // the state's value for the key is subtracted from the value
  bool decays_rows = false;     // decays are of rows; with `delta` alone
  const float* skip = nullptr;  // [heads], in the device's memory, by which values go on; or null
};

// A selective scan's inputs. Each channel has a state of key_dim numbers.
struct SelectiveInputs {
  Tensor queries;  // [n, key_dim], C
  Tensor keys;     // [n, key_dim], B
  Tensor values;   // [n, channels]
  Tensor steps;    // [n, channels], of which softplus is taken
};
// Pointers are into the device's memory.
struct SelectiveParams {
  const float* log_rates = nullptr;  // [channels][key_dim]
  bool negative_rates = false;       // as DecayParams has it
  const float* skip = nullptr;       // [channels], by which values go on
};
inline constexpr int64_t kMostSelectiveKeys = 128;

// Choice of a row's experts by its logits, one of each expert. All in float32.
enum class RouterScore : uint8_t {
  softmax,  // of all experts
  sigmoid,
  sqrt_softplus,  // the root of softplus
  // Each choice is the largest logit that is left, and its weight that of a
  // softmax of those that are left and within 2 jitter of it, by the larger of
  // both magnitudes (SparseMixer of Phi-3.5, arXiv:2409.12136, as transformers
  // computes it). No bias, no groups, not normalized.
  sparse_mixer,
};
struct RouterParams {
  RouterScore score = RouterScore::softmax;
  int64_t top_k = 1;            // experts of a row
  const float* bias = nullptr;  // [experts] in the device's memory, added to scores for the
                                // choice alone (arXiv:2408.15664); null: none
  bool chooses_logits = false;  // the bias is added to logits, by which the choice is made
  // Experts are in groups of neighbours, and chosen from those groups whose two
  // largest of what is chosen by have the largest sums
  // (arXiv:2412.19437, 2.1.2), or whose largest is the largest
  // (arXiv:2405.04434, 2.2.2).
  int64_t groups = 1;
  int64_t top_k_groups = 1;
  bool groups_by_largest = false;
  bool normalized = false;  // the weights of a row are divided by their sum and `added`
  float added = 0;
  float factor = 1;                // of weights, at last
  const float* factors = nullptr;  // [experts] in the device's memory, of weights, too; null: none
  float jitter = 0;                // of sparse_mixer
  // [tokens of the vocabulary][top_k] in the device's memory: the experts of each token, in the
  // place of a choice, as numbers; null: there are none. Without bias or groups.
  const float* table = nullptr;
  std::span<const int32_t> ids = {};  // the rows' tokens
};
inline constexpr int64_t kMostExperts = 1024;

// Experts of rows and their weights, both [rows][top_k].
struct ExpertChoices {
  int32_t* experts = nullptr;
  float* weights = nullptr;
};

// A matrix of each of a layer's experts, in the device's memory. All planes of one lie `step` bytes
// behind those of the expert before, and its bias bias_step.
struct ExpertMatrix {
  Weight first;
  int64_t step = 0;
  const float* bias = nullptr;  // [rows] of the first; null: none have one
  int64_t bias_step = 0;
};

// A layer's experts: down(activation(gate_multiplier * first rows of up(x)) * the rows of it from
// `second` on), or what a clamped SwiGLU makes of both.
struct ExpertWeights {
  int64_t count = 0;
  int64_t width = 0;  // columns of `down`
  ExpertMatrix up, down;
  int64_t second = 0;  // 0: there is nothing to multiply by
  ActivationParams activation = {};
  float gate_multiplier = 1;
};

// The output of an expert that all rows have, which is added to the sum of the others: each row as
// it is, or, with weights [n, 1], times its own. No data: there is none.
struct SharedExpert {
  Tensor out = {}, weights = {};
};

// Matrices of heads, below one another in a weight of the packed layout: head h
// has the rows [h * rows, (h + 1) * rows), without regard to panels.
struct HeadMatrices {
  Weight weight;          // some of the rows, whole panels: a tile
  int64_t first_row = 0;  // of the tile
  int64_t heads = 0;
  int64_t rows = 0;
  // Elements of x behind a head's inputs that are put behind its outputs in y as they are.
  int64_t tail = 0;
};
// The matrix W of a head as it is, x W, or transposed, x W^T.
enum class HeadProduct : uint8_t { plain, transposed };

// A token of a row of logits.
struct TokenLogit {
  float logit = 0;
  int32_t id = 0;  // its column
};

// Room for the largest logits of some rows.
struct TopLogits {
  int64_t most = 0;              // tokens of a row
  TokenLogit* tokens = nullptr;  // [rows][most]
  int32_t* counts = nullptr;     // [rows]
};

class Kernels {
 public:
  virtual ~Kernels() = default;
  virtual std::string_view name()
      const = 0;  // "reference", "portable", "avx2", "avx512_bf16", "amx", "cuda"
  // The stream that ops put their work into.
  virtual DeviceStream& stream() const { return host_stream(); }

  // Copies a step's rows to the device's memory, where the other ops read them; returns them as
  // they are where that is the host's. Valid until the next call; the chunks stay the caller's.
  virtual StepRows upload(const StepRows& rows) { return rows; }

  // out[i] = table row ids[i], dequantized. ids are within the table. Any layout.
  virtual void embed(const Weight& table, std::span<const int32_t> ids, Tensor out) const = 0;

  // y = x * rsqrt(mean(x^2) + eps) * weight + bias, per row; of a layer norm, x is x - mean(x).
  // weight: 1 row (rows layout), of as many columns as x, or as a part of x (a head): then each
  // such part of a row is normed by itself. Without data it stands for ones. y may be x.
  virtual void norm(Tensor x, const Weight& weight, const NormParams& params, Tensor y) const = 0;

  // residual += x, then y = norm(residual): one pass. y may be x.
  virtual void add_norm(Tensor residual, Tensor x, const Weight& weight, const NormParams& params,
                        Tensor y) const = 0;

  // sums [n, 1] = the sum of squares of each row.
  virtual void sum_squares(Tensor x, Tensor sums) const = 0;

  // y = x w^T (+ bias): x [n, cols], y [n, rows of w, padding included], bias
  // float32[w.rows] or null. bf16 compute rounds x to bf16 (to nearest even)
  // when w is bf16 or f8_e4m3; all sums are float32. For per_row scales the sum
  // is multiplied once at the end; for per_block each 128 columns are summed
  // from zero, then scaled, then added in order. With i8 weights, and where the
  // format says quantized_input, each row of x becomes codes of w's type by a
  // scale of its own (code_scale of its largest |x|), or for per_block each 128
  // columns of it, whatever the compute type, by which the sum is multiplied
  // first; a row that is not finite gives NaN. Grouped weights
  // (quant/groups.h): the products of a group are summed from zero in column
  // order, times its scale, less the sum of its inputs in column order times
  // its minimum; groups are added in order. bf16 compute rounds x. If w has an
  // order of columns, x is permuted to it.
  virtual void linear(Tensor x, const Weight& w, const float* bias, Tensor y) const = 0;

  // Returns whether fused_linear() computes these for so many rows. If not, they are ops of their
  // own.
  virtual bool fuses(const Weight& /*w*/, int64_t /*rows*/, const Fusion& /*fusion*/) const {
    return false;
  }

  // linear() with what `fusion` says, by the arithmetic of the ops that it stands for. Rows of x
  // begin at multiples of 16 bytes. Columns of y that are only a gate's factor are undefined.
  virtual void fused_linear(Tensor /*x*/, const Weight& /*w*/, const float* /*bias*/,
                            const Fusion& /*fusion*/, Tensor /*y*/) const {
    check(false, "fused_linear: kernels that compute it");
  }

  // y_h = x_h W_h of each head, or x_h W_h^T, in float32. Heads begin at each
  // x_step columns of x, and y_step of y; a row of W is one of x's elements, or
  // y's. A plain product is summed in y, row after row of W, so that a head's
  // tiles come in order. MLA's (arXiv:2405.04434, 2.1.2) keys and values,
  // absorbed into queries and outputs.
  virtual void multiply_heads(Tensor x, int64_t x_step, const HeadMatrices& matrices,
                              HeadProduct product, Tensor y, int64_t y_step) const = 0;

  // Rotates pairs of each head's first rope_dim elements, in place. x [n, heads
  // * head_dim]; cos, sin [n, rope_dim / 2].
  virtual void rope(Tensor x, int64_t head_dim, RopePairing pairing, Tensor cos,
                    Tensor sin) const = 0;

  // keys [n, kv_heads * key_dim], values [n, kv_heads * value_dim] → cache. slots[i] = block *
  // block_size + offset of row i, or -1, where it is not stored. A latent cache stores only the
  // keys, which hold the values. FP8: code = x / scale, rounded to nearest even, saturated, as
  // quant/encode.h says; scale = the cache's, or code_scale(largest finite |x| of the token's
  // head), which is stored with the codes.
  virtual void store_kv(Tensor keys, Tensor values, std::span<const int64_t> slots,
                        const KvCache& cache) const = 0;

  // rope() of q and keys, whose heads are of cache.key_dim, and store_kv() of what it leaves.
  virtual void rope_store_kv(Tensor q, Tensor keys, Tensor values, RopePairing pairing, Tensor cos,
                             Tensor sin, std::span<const int64_t> slots,
                             const KvCache& cache) const {
    rope(q, cache.key_dim, pairing, cos, sin);
    rope(keys, cache.key_dim, pairing, cos, sin);
    store_kv(keys, values, slots, cache);
  }

  // Causal attention of each row over its sequence's tokens up to itself. q [n,
  // heads * key_dim], out [n, heads * value_dim]; heads is a multiple of
  // cache.kv_heads (GQA). Per row and head: partitions of 512 positions from
  // position 0, each with its own maximum and sum, combined in order (as
  // FlashDecoding). Positions before the first one that a row attends to are
  // not read for it; those before that of a chunk's first row, not at all.
  virtual void paged_attention(Tensor q, const KvCache& cache, const KvRows& rows,
                               const AttentionParams& params, Tensor out) const = 0;

  // rope_store_kv() into the slots of `rows`, and paged_attention() over what is then stored. The
  // contents of q and keys are undefined behind it.
  virtual void rope_store_attend(Tensor q, Tensor keys, Tensor values, RopePairing pairing,
                                 Tensor cos, Tensor sin, const KvCache& cache, const KvRows& rows,
                                 const AttentionParams& params, Tensor out) const {
    rope_store_kv(q, keys, values, pairing, cos, sin, rows.slots, cache);
    paged_attention(q, cache, rows, params, out);
  }

  // Chooses the out.most positions (or entries of windows) of each row's sequence up to itself that
  // have the largest scores, and of equal ones the lowest. A score is the sum over heads of weight
  // * max(0, q key): the indexer of DeepSeek-V3.2 (arXiv:2512.02556, 2.1) without its factors of
  // all scores. q [n, heads * key_dim], weights [n, heads]; all heads have the cache's one key of a
  // position.
  virtual void choose_positions(Tensor q, Tensor weights, const KvCache& keys, const KvRows& rows,
                                const ChosenPositions& out) const = 0;

  // out = activation(x) * up; without `up` (null data), activation(x). out may
  // be x. A clamped SwiGLU has an `up`.
  virtual void activate(const ActivationParams& activation, Tensor x, Tensor up,
                        Tensor out) const = 0;

  // x += y
  virtual void add(Tensor x, Tensor y) const = 0;

  // x *= factor, and by *by, where that is not null: it is in the device's memory.
  virtual void scale(Tensor x, float factor, const float* by) const = 0;

  // Multiplies the columns of each head by its factor. x [n, heads * any], factors [n, heads], or
  // [1, heads] for all rows.
  virtual void scale_heads(Tensor x, Tensor factors) const = 0;

  // Adds to each part of y the parts of x, in order, times their weights (arXiv:2301.13310): y_k +=
  // (weights[k, j] + added) x_j. Parts have `dim` columns: x [n, parts * dim], at most kMostParts,
  // y [n, others * dim], weights [n, others * parts]. y may be x.
  virtual void mix(Tensor x, Tensor weights, float added, int64_t dim, Tensor y) const = 0;

  // Scales each part of x [n, any * dim] so that its mean square is that of the row of `to` [n,
  // dim]. Mean squares of x below `least` are taken for it.
  virtual void match_squares(Tensor x, Tensor to, float least) const = 0;

  // moments [n, 2] = the sum of each row, and that of its squares.
  virtual void sum_moments(Tensor x, Tensor moments) const = 0;

  // x = max(0, x - mean - deviations * standard deviation) of whole rows of `cols` columns, whose
  // moments these are, and x some of.
  virtual void cut(Tensor x, float deviations, Tensor moments, int64_t cols) const = 0;

  // y[t] = bias + the sum over j < width of weight[j] x[t - (width - 1) + j], from the oldest on,
  // where x before a chunk's first row is the state [width - 1][cols], which becomes the chunk's
  // last inputs. y may be x.
  virtual void causal_conv(Tensor x, const ConvParams& params, const StateRows& state,
                           Tensor y) const = 0;

  // Pools windows as PoolParams says; x [n, values and gates]. out [n, columns]: of the last row of
  // a window what it makes, zeros of others. Chunks and batches change no bit.
  virtual void pool(Tensor values, Tensor gates, const PoolParams& params, const StateRows& state,
                    Tensor out) const = 0;

  // Reads streams [n, streams * cols] into out [n, cols]: the sum of sigmoid(a) + eps times each.
  // logits [n, streams (2 + streams)] are products of the streams, which the root of their mean
  // square divides first; a, b and c are parts of scale * logit + bias. What is behind `a` becomes
  // the weights that write_streams() takes: 2 sigmoid(b), and the rows' softmax of c + eps, whose
  // columns, then rows and columns `iterations` - 1 times, are divided by their sum + eps. Without
  // these, logits [n, streams].
  virtual void read_streams(Tensor streams, const StreamMix& mix, Tensor logits,
                            Tensor out) const = 0;
  // streams[k] = b[k] x + the sum over j of c[j][k] streams[j]
  virtual void write_streams(Tensor x, Tensor weights, Tensor streams) const = 0;

  // steps [n, heads * of_head] become what DecayParams calls so, and decays what is left; of one
  // matrix in both places, what is left.
  virtual void decay(Tensor steps, const DecayParams& params, Tensor decays) const = 0;

  // Fills decays [n, any of the heads], each row with the same.
  virtual void slope_decays(const DecaySlopes& slopes, Tensor decays) const = 0;

  // A recurrence of each head over the rows of each sequence, token by token, from its state S
  // [heads][key_dim][value_dim], which it brings forward, all in float32:
  //   S = a S;  S += k (b (v - S^T k))^T with `delta`, else S += k (b v)^T;  out = S^T q + skip v
  // (gated delta rule: arXiv:2412.06464; state-space duality, where k is B, q is C and v is x:
  // arXiv:2405.21060). Chunks, batches and threads change no bit. out [n, heads * value_dim] may be
  // the values.
  virtual void scan(const ScanInputs& inputs, const ScanParams& params, const StateRows& state,
                    Tensor out) const = 0;

  // A recurrence of each channel by itself (arXiv:2312.00752) over the rows of each sequence, token
  // by token, from its column of the state S [key_dim][channels], which it brings forward, all in
  // float32; b = softplus(step), and the keys k are taken in order:
  //   S[k] = exp(-exp(log_rates[k]) b) S[k] + b v keys[k];  out = sum S[k] queries[k] + skip v
  // Chunks, batches and threads change no bit. out [n, channels] may be the steps or the values.
  virtual void selective_scan(const SelectiveInputs& inputs, const SelectiveParams& params,
                              const StateRows& state, Tensor out) const = 0;

  // Chooses experts for each row of logits [n, experts]: the largest scores, and of equal ones the
  // lowest ids. out.experts rise in each row, and out.weights are their scores, as params says.
  virtual void route(Tensor logits, const RouterParams& params, const ExpertChoices& out) const = 0;

  // out[i] = weights[i] * x[rows[i]]. `rows` are in the device's memory.
  // weights [n, 1]; without data they stand for ones.
  virtual void index_select(Tensor x, std::span<const int32_t> rows, Tensor weights,
                            Tensor out) const = 0;

  // y[rows[i]] += weights[i] * x[i], rounded twice; weights as above. No row
  // comes twice.
  virtual void index_add(Tensor x, std::span<const int32_t> rows, Tensor weights,
                         Tensor y) const = 0;

  // Returns whether experts() computes these for any number of rows. If not,
  // they are computed one after the other, by lists that the host makes of the
  // choices.
  virtual bool computes_experts(const ExpertWeights& /*weights*/, int64_t /*top_k*/) const {
    return false;
  }

  // y [n, rows of down] = of each row of x the sum, by rising ids, of the chosen experts' outputs
  // times their weights, each rounded twice as index_add does, and then what is shared. The
  // products are those of linear(), for at most 16 rows with its bits. y may be x, but not what is
  // shared. Nothing waits for the choices, which route() has made.
  virtual void experts(Tensor /*x*/, const ExpertWeights& /*weights*/, int64_t /*top_k*/,
                       const ExpertChoices& /*choices*/, const SharedExpert& /*shared*/,
                       Tensor /*y*/) const {
    check(false, "experts: kernels that compute them");
  }

  // x = cap * tanh(x / cap)
  virtual void soft_cap(Tensor x, float cap) const = 0;

  // x = min(max(x, -limit), limit), where NaN stays.
  virtual void clamp(Tensor x, float limit) const = 0;

  // out[i]: the largest logit of row i, of the lowest id among equals; where any is NaN, NaN and
  // id 0. All in the device's memory.
  virtual void likeliest(Tensor logits, std::span<TokenLogit> out) const = 0;

  // Writes the k <= out.most largest logits of each row, or all if there are fewer, and those equal
  // to the last of them, unordered; NaN is the largest. If a count exceeds out.most, some are
  // missing.
  virtual void top_logits(Tensor logits, int64_t k, const TopLogits& out) const = 0;
};

// The token with the largest logit of one row in host memory.
TokenLogit likeliest(std::span<const float> row);

// Puts weights where kernels take them from. Sources are in host memory, and done with when a call
// returns. May be called from several threads at once, for different rows.
class Encoder {
 public:
  virtual ~Encoder() = default;
  // Encodes row groups (quant/encode.h), the same bits as encode_reference, into the device's
  // memory.
  virtual EncodeStats encode(const EncodeArgs& args) const = 0;
  // Largest finite |x| of the rows.
  virtual float absolute_max(const std::byte* source, DType stored, int64_t source_stride,
                             int64_t rows, int64_t cols) const = 0;
  // Gives the columns of encoded rows the weight's order (quant/order_codes.h). `order` is the
  // host's.
  virtual void order_columns(const Weight& to, int64_t first_row, int64_t rows,
                             const int32_t* order) const = 0;
};

// The instruction set of the CPU kernels; automatic takes the best that the machine has. amx is
// avx512_bf16 with tiles for linear layers of bf16, fp8 and int8 weights (bf16 and fp8 only in bf16
// compute).
enum class Isa : uint8_t { automatic, reference, portable, avx2, avx512_bf16, amx };
std::vector<Isa> all_isas();                          // best first, without automatic
bool isa_supported(Isa isa);                          // on this machine
std::string isa_missing(Isa isa);                     // why not; "" where it is supported
std::string_view isa_name(Isa isa);                   // as name() of its backend
std::optional<Isa> parse_isa(std::string_view name);  // "auto", or a backend's name()

// The functions that serve an instruction set's kernels, a line for each family of ops.
struct KernelChoice {
  std::string_view ops;
  std::string_view functions;
};
std::vector<KernelChoice> kernel_choices(Isa isa);

// Upper bounds of steps, from which the scratch memory of the ops follows.
struct WorkspaceNeeds {
  int64_t max_rows = 0;
  int64_t max_cols = 0;  // of a linear layer's input
  int64_t key_dim = 0;   // elements of a KV head, the most of all layers
  int64_t value_dim = 0;
  int64_t state_keys = 0;  // rows of a head's state, the most of all layers; 0: there are none
  int64_t head_cols = 0;   // of HeadMatrices, the most of all layers; 0: there are none
  bool grouped = false;    // some weights are grouped codes or blocks (quant/groups.h)
  int64_t chosen = 0;      // positions of a row, the most of all layers; 0: none are chosen
  bool more_keys = false;  // some attention has MoreKeys
  // Experts of a layer, the most of each; 0: there are none.
  int64_t experts = 0;
  int64_t top_k = 0;
  int64_t expert_cols = 0;    // of down
  int64_t expert_hidden = 0;  // of up
  // The CPU does not use these, as its scratch does not depend on the context:
  int64_t heads = 0;        // of queries
  bool alibi = false;       // with slopes for these
  int64_t rope_cols = 0;    // of cos and sin
  int64_t groups = 1;       // of layers
  int64_t sequences = 1;    // in a step
  int64_t longest = 0;      // positions of a sequence
  int64_t block_size = 16;  // tokens, the least of all groups of layers
};
// Bytes of scratch.
uint64_t cpu_workspace_bytes(const WorkspaceNeeds& needs, int threads);

// `workspace` is 64-byte aligned, of cpu_workspace_bytes, and outlives the kernels; so does the
// pool.
std::unique_ptr<Kernels> make_cpu_kernels(Isa isa, Compute compute, ThreadPool& pool,
                                          std::span<std::byte> workspace);
std::unique_ptr<Encoder> make_cpu_encoder(Isa isa);  // works on the calling thread

}  // namespace sluice
