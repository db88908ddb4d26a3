// Host functions of the CUDA kernel files. Each checks shapes, chooses the launch and puts the
// kernels into a stream. All pointers are the device's, those inside a Tensor or Weight too, and
// nothing here reads what they point to. Semantics are those of kernels/kernels.h where no other
// are stated. Nothing allocates: scratch is a parameter.
//
// Matrices have the layout that quant/matrix_layout.h gives a GPU, vectors and tables that are only
// looked up plain rows; both are read 16 bytes a lane where sizes allow it. Without CUDA's headers,
// so that plain C++ can include it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"
#include "quant/encode.h"
#include "quant/format.h"
#include "src/base/tensor.h"

struct CUstream_st;

namespace sluice::cuda {

using Stream = CUstream_st*;  // cudaStream_t

// ids [out.rows], each a row of the table.
void embed(const Weight& table, const int32_t* ids, Tensor out, Stream stream);
void norm(Tensor x, const Weight& weight, const NormParams& params, Tensor y, Stream stream);
void add_norm(Tensor residual, Tensor x, const Weight& weight, const NormParams& params, Tensor y,
              Stream stream);
void rope(Tensor x, int64_t head_dim, RopePairing pairing, Tensor cos, Tensor sin, Stream stream);
void activate(const ActivationParams& activation, Tensor x, Tensor up, Tensor out, Stream stream);
void scale(Tensor x, float factor, const float* by, Stream stream);
void scale_heads(Tensor x, Tensor factors, Stream stream);
void mix(Tensor x, Tensor weights, float added, int64_t dim, Tensor y, Stream stream);
void match_squares(Tensor x, Tensor to, float least, Stream stream);
void sum_moments(Tensor x, Tensor moments, Stream stream);
void cut(Tensor x, float deviations, Tensor moments, int64_t cols, Stream stream);
void soft_cap(Tensor x, float cap, Stream stream);
void clamp(Tensor x, float limit, Stream stream);
void sum_squares(Tensor x, Tensor sums, Stream stream);
void add(Tensor x, Tensor y, Stream stream);
void route(Tensor logits, const RouterParams& params, const ExpertChoices& out, Stream stream);
void read_streams(Tensor streams, const StreamMix& mix, Tensor logits, Tensor out, Stream stream);
void write_streams(Tensor x, Tensor weights, Tensor streams, Stream stream);
void index_select(Tensor x, std::span<const int32_t> rows, Tensor weights, Tensor out,
                  Stream stream);
void index_add(Tensor x, std::span<const int32_t> rows, Tensor weights, Tensor y, Stream stream);
void likeliest(Tensor logits, TokenLogit* out,
               Stream stream);  // out [logits.rows]
void top_logits(Tensor logits, int64_t k, const TopLogits& out, Stream stream);

// Decode: y = x w^T (+ bias) as kernels.h has it, for at most most_rows(), with
// bandwidth in mind. The order of sums differs from the CPU's. workspace:
// few_rows_workspace_bytes(w.cols), aligned to 16 bytes; nobody else may use it
// until the stream is past this.
inline constexpr int64_t kFewRows = 16;
// Most rows that linear_few_rows takes: kFewRows, or any number where the weight is multiplied in
// float32 (a router) and needs no scratch, so that a prompt is one launch.
int64_t most_rows(const Weight& w, Compute compute);
uint64_t few_rows_workspace_bytes(int64_t cols);
// A gate and its factor become activation(multiplier * gate) * factor, or what an activation with a
// limit makes of them.
struct Gating {
  Activation kind = Activation::identity;
  float limit = 0, alpha = 0;  // as of ActivationParams
  float multiplier = 1;
};
// Returns whether products compute the activation on the way; what takes values does not, nor
// softplus, which gates heads alone.
constexpr bool gating_fits(Activation kind) {
  return kind != Activation::xielu && kind != Activation::softplus;
}
// Returns whether linear_few_rows computes the fusion of so many rows.
bool fusion_fits(const Weight& w, int64_t rows, const Fusion& fusion, Compute compute);
void linear_few_rows(Tensor x, const Weight& w, const float* bias, Compute compute,
                     std::byte* workspace, Tensor y, Stream stream, const Fusion& fusion = {});

// workspace: heads_workspace_bytes(columns of the weight), for weights in groups.
uint64_t heads_workspace_bytes(int64_t head_cols);
void multiply_heads(Tensor x, int64_t x_step, const HeadMatrices& matrices, HeadProduct product,
                    Tensor y, int64_t y_step, std::span<std::byte> workspace, Stream stream);

// ---- encoding

// Encodes to the weight's layout, with the bits of encode_reference; the source is aligned to its
// elements. Statistics are added to *stats, in any order. tensor_amax: the result of absolute_max,
// for ScaleGroup::tensor and nested; args.tensor_amax is not used.
void encode(const EncodeArgs& args, const float* tensor_amax, EncodeStats* stats, Stream stream);
// *amax becomes the largest of what it was (not negative) and every finite |x|.
void absolute_max(const std::byte* source, DType stored, int64_t source_stride, int64_t rows,
                  int64_t cols, float* amax, Stream stream);

// ---- KV cache

// Needs of the cache's kernels beyond kernels/kv_cache.h: keys and values of a multiple of
// kHeadUnit elements, at most kMostHeadDim; runs and blocks of whole kRunBytes.
inline constexpr int64_t kHeadUnit = 4, kMostHeadDim = 1024, kRunBytes = 8;
// Returns whether attention_wide alone takes it: the others take heads of multiples of 8 elements
// up to 256, whose values are not the beginnings of their keys.
bool is_wide(const KvCache& cache);
void check_paged_cache(const KvCache& cache);

// keys [n, kv_heads * key_dim], values [n, kv_heads * value_dim]; slots [n]: block * block_size +
// offset, or negative for a row that is not stored.
void store_kv(Tensor keys, Tensor values, const int64_t* slots, const KvCache& cache,
              Stream stream);
// rope() of q and keys, whose heads are of cache.key_dim, and store_kv(), in one launch.
void rope_store_kv(Tensor q, Tensor keys, Tensor values, RopePairing pairing, Tensor cos,
                   Tensor sin, const int64_t* slots, const KvCache& cache, Stream stream);

// MoreKeys on the device, from the first row on.
struct MoreTokens {
  KvCache cache;
  const int32_t* tables = nullptr;
  const int32_t* sequences = nullptr;  // [n]
  ChosenPositions chosen = {};
  // Entries that a row attends to at most, where sequences have so many tokens.
  int64_t longest(int64_t tokens) const {
    const int64_t all = tokens / cache.tokens;
    return chosen.most > 0 && chosen.most < all ? chosen.most : all;
  }
};

// A layer's attention, besides its shapes.
struct AttentionSettings {
  float scale = 1;
  int64_t window = 0;  // as of AttentionParams
  int64_t chunk = 0;
  float soft_cap = 0;                   // scores become soft_cap * tanh(score / soft_cap); 0: none
  const float* alibi_slopes = nullptr;  // [heads]: score += slope * (key - query position)
  const float* sinks = nullptr;      // [heads]: a logit in the softmax's sum that brings no value
  ChosenPositions chosen = {};       // for attention_wide alone; from the first row on
  const MoreTokens* more = nullptr;  // the same; null: none
};

// Blocks of each sequence: [sequences][stride], by position / block_size. Blocks wholly before the
// positions that a row attends to are never looked up.
struct BlockTables {
  const int32_t* blocks = nullptr;
  int64_t stride = 0;
};

// Decode: each row attends to what its sequence has up to itself. q [n, heads * key_dim], out
// [n, heads * value_dim].
// Partitions of kPartition positions, from position 0, go to blocks of their own and are then
// combined in order (FlashDecoding), by the last block; a single one is the result as it is.
// sequences, positions [n], on the device; `longest`: the largest position + 1. workspace:
// decode_workspace_bytes, aligned to 16 bytes.
inline constexpr int64_t kPartition = 512;
struct DecodeRows {
  const int32_t* sequences = nullptr;
  const int32_t* positions = nullptr;
  int64_t longest = 0;
  int32_t* arrived = nullptr;  // [n][heads], zeros before and after: counters of attention_decode
};
// Rows' keys and values, which are not in the cache yet: attention_decode rotates queries and keys
// as rope_store_kv() does, and stores them.
struct NewTokens {
  Tensor keys, values;
  RopePairing pairing = RopePairing::halves;
  Tensor cos, sin;
  const int64_t* slots = nullptr;
};
uint64_t decode_workspace_bytes(int64_t rows, int64_t heads, int64_t value_dim, int64_t longest,
                                int64_t more = 0);  // entries of another cache
// With `tokens` each row is of a sequence of its own.
void attention_decode(Tensor q, const KvCache& cache, const BlockTables& tables,
                      const DecodeRows& rows, const AttentionSettings& settings,
                      std::byte* workspace, Tensor out, Stream stream,
                      const NewTokens* tokens = nullptr);

// The same of any cache, for prompts, too, and to positions that are chosen: `longest` is then the
// most that any row has of them.
void attention_wide(Tensor q, const KvCache& cache, const BlockTables& tables,
                    const DecodeRows& rows, const AttentionSettings& settings, std::byte* workspace,
                    Tensor out, Stream stream);

// workspace: choice_workspace_bytes of the rows and rows.longest, as of attention_decode.
uint64_t choice_workspace_bytes(int64_t rows, int64_t longest);
void choose_positions(Tensor q, Tensor weights, const KvCache& keys, const BlockTables& tables,
                      const DecodeRows& rows, const ChosenPositions& out, std::byte* workspace,
                      Stream stream);

// Prefill: chunks of consecutive tokens of one sequence, whose keys and values are stored already.
// By tensor cores: q and the softmax's weights are rounded to bf16, sums are float32. For caches of
// bf16 and 8-bit elements. `longest`: the most rows of a chunk.
struct PrefillChunk {
  int32_t first_row = 0;  // of q and out
  int32_t rows = 0;
  int32_t first_position = 0;
  int32_t sequence = 0;
};
void attention_prefill(Tensor q, const KvCache& cache, const BlockTables& tables,
                       const PrefillChunk* chunks, int64_t count, int64_t longest,
                       const AttentionSettings& settings, Tensor out, Stream stream);

// ---- states

// Places of the states of a step's sequences: a block for each of their pages. A chunk's rows are
// found by `chunks`, or without these by `sequences`, in which each row has its own number.
struct StateChunks {
  const int32_t* tables = nullptr;
  const int32_t* sequences = nullptr;  // [rows]: where in `tables` the first page's block is
  const int32_t* second = nullptr;     // [rows]: where the second page's is; null: there is none
  const int32_t* positions = nullptr;  // [rows]
  const PrefillChunk* chunks = nullptr;
  int64_t count = 0;  // chunks, where they are given
};

void causal_conv(Tensor x, const ConvParams& params, const StateRows& state,
                 const StateChunks& chunks, Tensor y, Stream stream);
void decay(Tensor steps, const DecayParams& params, Tensor decays, Stream stream);
void pool(Tensor values, Tensor gates, const PoolParams& params, const StateRows& state,
          const StateChunks& chunks, Tensor out, Stream stream);
void slope_decays(const DecaySlopes& slopes, Tensor decays, Stream stream);
void scan(const ScanInputs& inputs, const ScanParams& params, const StateRows& state,
          const StateChunks& chunks, Tensor out, Stream stream);
void selective_scan(const SelectiveInputs& inputs, const SelectiveParams& params,
                    const StateRows& state, const StateChunks& chunks, Tensor out, Stream stream);

}  // namespace sluice::cuda
