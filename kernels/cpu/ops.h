// Kernels of one instruction set: functions on plain pointers, gathered in a table.
//
// kernels/cpu/*.cc are compiled for the baseline CPU: they check shapes, divide work among threads
// and call through the table. kernels/cpu/simd/*.cc are compiled once for each instruction set,
// into namespace sluice::cpu::SLUICE_ISA. The latter must not use inline functions or templates
// that other translation units share: the linker keeps one copy of each, and that could be one with
// AVX-512 inside. Hence the plain types here; a test looks at the object files.
//
// Linear layers and attention share one product, y = x w^T, on these operands:
//   cell   64 bytes of weights: 16 output channels x one unit
//   unit   32 bits of x: a float32, a pair of bf16 (columns k, k+1), or four i8
//   panel  the cells of 16 output channels, consecutive units
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/block_layout.h"
#include "quant/format.h"
#include "quant/order_codes.h"
#include "quant/pack_codes.h"
#include "src/base/dtype.h"

namespace sluice {
enum class Activation : uint8_t;
}

namespace sluice::cpu {

// Rows of x that are packed together: all, if they are few; else tiles of kTileRows. And the most
// rows that one pass over the weights serves.
inline constexpr int64_t kFewRows = 16;
inline constexpr int64_t kTileRows = 12;
inline constexpr int64_t kRowBlock = 264;
// Panels that a thread takes at a time: of few rows, and with a block of rows.
inline constexpr int64_t kStreamedPanels = 4;
inline constexpr int64_t kReusedPanels = 16;
// The same on AMX tiles: a tile's rows, those up to which sums stay in registers, and a block's;
// and of panels that a thread takes with a block, the most, and those times rows.
inline constexpr int64_t kAmxRows = 16;
inline constexpr int64_t kAmxFewRows = 64;
inline constexpr int64_t kAmxRowBlock = 512;
inline constexpr int64_t kAmxPanels = 32;
inline constexpr int64_t kAmxPanelRows = 24 * kAmxRowBlock;
// Bytes of two panels that a block of rows passes over at a time, decoded: with the rows' part of
// the same columns they stay in L2.
inline constexpr int64_t kDecodedBytes = int64_t{96} * 1024;
// The same on tiles: of the steps of a chunk, which stay in L1, and of the next chunk's.
inline constexpr int64_t kAmxTileBytes = 1024;
inline constexpr int64_t kAmxChunkSteps = 12;
inline constexpr int64_t kAmxDecodedBytes = 2 * 2 * kAmxChunkSteps * kAmxTileBytes;

// The steps of AMX tiles that a layer has, as `count` chunks of about one size, of whole `unit`s
// but for the last.
struct TileChunks {
  int64_t steps = 0;
  int64_t unit = 1;
  int64_t count = 1;
};

enum class Units : uint8_t {
  f32,          // x as it is
  f32_rounded,  // x rounded to bf16, as float32
  bf16_pairs,   // x rounded to bf16
  i8,           // x / scale, rounded to nearest even; scale = the row's largest |x| / 127
  i16_pairs,    // the same codes as 16-bit numbers: of four columns (0, 2), then (1, 3)
  bf16_tiles,   // the same as the two above, for LinearJob::tiles
  i8_tiles,
};

// Packs at most kFewRows rows of x to [units][rows], with zeros behind the last column. For tiles
// [units / 16][tile_rows][16 units], with zeros behind the last row, too; several tiles of rows
// together as [chunk][tile][step of the chunk].
struct PackJob {
  const float* x = nullptr;
  int64_t stride = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  Units kind = Units::f32;
  int64_t unit_cols = 1;
  int64_t units = 0;
  uint32_t* out = nullptr;
  // Scales of codes, [rows][groups of group_cols columns]; NaN where x is not finite. group_cols is
  // cols, or a multiple of 64. Without offsets the codes are E4M3's, whose values are packed as
  // `kind` says. Offsets are for int8 codes: 128 times the sum of a row's codes, because the
  // weights are stored + 128.
  float* scales = nullptr;
  int64_t group_cols = 0;
  int32_t* offsets = nullptr;
  // The rest is for tiles only. `out` is the same for all of them.
  int64_t tile_rows = 0;  // at least rows
  int64_t tile = 0;       // of rows
  int64_t tiles = 1;
  TileChunks chunks = {};
  bool f8_weights = false;  // float32 that E4M3 codes are to be multiplied by
};

// A block of rows of one linear layer.
struct LinearJob {
  const uint32_t* x = nullptr;  // tiles of tile_rows rows (the last may have fewer): [units][rows]
  int64_t tile_rows = 0;        // at most kFewRows
  int64_t rows = 0;
  int64_t units = 0;  // of a row, padding included
  bool pairs = false;
  // x is in AMX tiles of tile_rows rows, the last filled up with zeros, in these chunks. The panels
  // are so many streams; 0: groups of panels with many rows.
  bool tiles = false;
  TileChunks chunks = {};
  int64_t streams = 0;
  int64_t cell_units = 1;  // that a cell of the weight spans
  const std::byte* weight = nullptr;
  DType dtype = DType::bf16;
  int64_t panel_bytes = 0;
  int64_t panels = 0;
  bool fetch_into_l1 = false;           // weights, past the other caches; else into L2
  const float* row_scales = nullptr;    // [output channels] or null
  const float* block_scales = nullptr;  // [panels][blocks] or null
  const float* x_scales = nullptr;      // of PackJob, [rows], or as block_scales [rows][blocks]
  const int32_t* x_offsets = nullptr;   // of PackJob, [rows]; null unless the weights are i8
  int64_t blocks = 0;
  const float* bias = nullptr;  // [output channels] or null
  float* y = nullptr;
  int64_t y_stride = 0;
};

// The inputs of a grouped layer.
enum class GroupedInputs : uint8_t {
  f32,          // or rounded to bf16, as float32
  bf16_pairs,   // with Ops::pair_units
  whole_pairs,  // integers of kernels/grouped_sum.h, as 16-bit numbers (256 H + L)
  whole_bytes,  // the same as three signed bytes
  one_byte,     // integers that have been rounded to 8 bits
};
// Rows up to which codes are decoded to bytes in registers; for more once for all.
inline constexpr int64_t kByteRows = 4;
inline constexpr int64_t kBlockCols = 256;  // of the integers' blocks

// Writes the integers of one row of x.
struct WholeJob {
  const float* x = nullptr;
  int64_t cols = 0;
  // Words [blocks][rows][words of a block], of one row:
  //   whole_pairs  H [128], L [128]: columns (2 k, 2 k + 1) in the halves of a word
  //   whole_bytes  L [64], the lower byte of H [64], its upper byte [64], four columns in a word:
  //                (0, 2, 1, 3), or with paired nibbles of eight (0, 4, 1, 5), (2, 6, 3, 7)
  //   one_byte     L [64] alone, which is X
  GroupedInputs kind = GroupedInputs::whole_pairs;
  bool rounded = false;  // X has 8 bits; with one_byte it must be
  bool paired_nibbles = false;
  uint32_t* out = nullptr;
  int64_t rows = 0;
  float* factors = nullptr;  // [blocks][rows]
  // Sums of X of a block's segments, [blocks][rows][segments]; and, for bytes, times -zero and
  // modulo 2^32, those of each of the three bytes from L on, and of X.
  int64_t group_cols = 0;
  int64_t segments = 0;
  float* sums = nullptr;
  int32_t* starts = nullptr;  // null: zero is 0
  int32_t zero = 0;
};
// Panels that bytes of so many rows are multiplied by side by side, each of a stream: no sum waits
// for the one before it, and there are registers for all.
constexpr int64_t byte_streams(int64_t rows) { return rows <= 2 ? 2 : 1; }
constexpr int64_t whole_words(GroupedInputs kind) {
  if (kind == GroupedInputs::one_byte) return 64;
  return kind == GroupedInputs::whole_bytes ? 192 : 256;
}

// A block of rows of one linear layer whose weights are grouped codes or blocks (quant/format.h).
struct GroupedJob {
  GroupedInputs inputs = GroupedInputs::f32;
  // Tiles of tile_rows rows (the last may have fewer): [units][rows]. Integers are as in WholeJob.
  const uint32_t* x = nullptr;
  int64_t tile_rows = 0;  // at most kFewRows
  int64_t rows = 0;
  int64_t units = 0;               // of a row, padding included
  const float* x_sums = nullptr;   // [rows][groups]: of the inputs of each group, in column order
  const float* factors = nullptr;  // of integers: these as in WholeJob
  const int32_t* starts = nullptr;
  int64_t segments = 0;
  bool integers = false;  // has_integer_codes
  bool rounded = false;   // integers of x have 8 bits
  int zero = 0;           // of bytes: what makes codes unsigned
  // Words of a segment, with bytes and many rows, if no sum of X times codes leaves 32 bits; 0: the
  // upper and lower parts are summed apart.
  int64_t narrow_words = 0;
  const std::byte* codes = nullptr;
  DType type = DType::u8;                // of blocks; u8: grouped codes
  int64_t block_cols = 32;               // of a block, or of a run of grouped codes
  int64_t block_bytes = 0;               // of a panel's block or run
  const uint16_t* grid = nullptr;        // of blocks, as block_tables() of quant/blocks.h has them;
  const int16_t* code_values = nullptr;  // which begin on a multiple of 64 bytes
  const float* row_scales = nullptr;     // [output channels] or null
  bool mins = false;
  int64_t panels = 0;
  int64_t cols = 0;        // whole blocks
  int64_t group_cols = 0;  // that share a scale: divides block_cols, or is a multiple of it
  int64_t groups = 0;      // of a row
  // Grouped codes only. Value = (code - zero - zero_base) * scale, or (code - zero_base) * scale +
  // zero.
  int bits = 0;
  CodeTable table = CodeTable::integers;
  const float* values = nullptr;      // of codes with a table of their own, as products take them
  bool wide = false;                  // and as float32
  const std::byte* scales = nullptr;  // [panels][groups][16]
  DType scale_type = DType::f16;
  const float* scale_values = nullptr;  // of scales of type u8, and what they have added
  Outer outer = Outer::none;
  int64_t outer_groups = 0;          // that have one; 0: all of a panel's rows do
  const float* outers = nullptr;     // [panels], or [panels][groups / outer_groups][16]
  const std::byte* zeros = nullptr;  // [panels][groups][16] of zero_type; null: zero_base is all
  DType zero_type = DType::u8;
  bool adds_zeros = false;
  int zero_base = 0;
  const float* bias = nullptr;  // [output channels] or null
  float* y = nullptr;
  int64_t y_stride = 0;
};
// Columns that are decoded at a time.
inline constexpr int64_t kGroupedCols = 256;

// The query rows of one sequence and the query heads of one KV head that attend together.
struct AttentionJob {
  const float* q = nullptr;  // query (i, h) at q + i * q_stride + h * key_dim
  int64_t q_stride = 0;
  int64_t rows = 0;
  int64_t heads = 0;                  // rows * heads <= kTileRows
  int64_t first_position = 0;         // of row 0
  const std::byte* keys = nullptr;    // of this KV head in block 0; [block_size][key_dim] a block
  const std::byte* values = nullptr;  // [block_size][value_row], of which value_dim are attended to
  int64_t block_stride = 0;           // bytes from one block to the next
  const int32_t* block_table = nullptr;
  int64_t block_size = 0;
  // The positions that the only row attends to, where they are chosen: the first first_position +
  // 1; null: all.
  const int32_t* chosen = nullptr;
  int64_t key_dim = 0;
  int64_t padded_keys = 0;  // key_dim rounded up to 16
  int64_t value_dim = 0;
  int64_t padded_values = 0;  // value_dim rounded up to 16
  int64_t value_row = 0;
  DType dtype = DType::bf16;
  // Type of queries and weights in products: f32, f32_rounded, bf16_pairs or bf16_tiles.
  Units units = Units::f32;
  float scale = 0;
  // Scales of an FP8 cache: float32 [block_size] a block, of this KV head in block 0; null:
  // key_scale and value_scale hold for all positions.
  const std::byte* key_scales = nullptr;
  const std::byte* value_scales = nullptr;
  float key_scale = 1;
  float value_scale = 1;
  int64_t window = 0;  // these as in AttentionParams
  int64_t chunk = 0;
  float soft_cap = 0;
  const float* alibi_slopes = nullptr;  // of the job's first head, or null
  const float* sinks = nullptr;
};
// Queries that share keys and values once these are decoded.
inline constexpr int64_t kQueries = 48;
inline constexpr int64_t kPartition = 512;                // positions
inline constexpr int64_t kScoreStride = kPartition + 16;  // apart from a power of two
inline constexpr int64_t kAttentionRun = 64;              // positions decoded at a time

// Softmax sums of a job's queries over some partitions: sum of p and of p v, where p = exp(score -
// largest).
struct AttentionSums {
  float* largest = nullptr;  // [kQueries]
  float* total = nullptr;    // [kQueries]; 0: no position yet
  float* values = nullptr;   // [kQueries][padded_values]
};

// Some columns of at most 16 consecutive rows of a tensor that is being encoded.
struct EncodeJob {
  const std::byte* source = nullptr;
  int64_t source_stride = 0;  // bytes
  DType stored = DType::bf16;
  int64_t rows = 0;
  int64_t cols = 0;
  DType dtype = DType::bf16;      // of the codes
  const float* scales = nullptr;  // [rows]
  std::byte* to = nullptr;        // packed: the first cell; else row 0
  bool packed = true;
  int64_t to_stride = 0;  // bytes from row to row, where not packed
};
struct EncodeSums {
  double error_squares = 0;
  double value_squares = 0;
  float max_error = 0;
  int64_t not_finite = 0;
};

// Blocks of GGUF of a panel's rows, which follow one another in each (quant/blocks.h).
struct InterleaveJob {
  BlockLayout layout;
  int64_t blocks = 0;                    // of a row
  const uint8_t* const* rows = nullptr;  // [16]
  const uint8_t* const* next = nullptr;  // [16]: the next panel's, which are fetched meanwhile
  uint8_t* to = nullptr;
};

// The members that all rows of a norm share: y = x / sqrt(mean(x^2) + eps) * weight + bias.
struct NormJob {
  bool centered = false;          // x - mean(x) in the place of x
  const float* weight = nullptr;  // [cols]
  const float* bias = nullptr;    // [cols] or null
  int64_t cols = 0;
  float eps = 0;
  // The sum of squares of the row, and of how many columns it is; null: of what is normed.
  const float* squares = nullptr;
  int64_t squares_cols = 0;
};

// xIELU's softplus(alpha_p), beta + softplus(alpha_n), beta and eps.
struct XieluValues {
  float alpha_p = 0;
  float alpha_n = 0;
  float beta = 0;
  float eps = 0;
};
struct ActivationJob {
  Activation activation;
  XieluValues xielu = {};
  float limit = 0;  // as of ActivationParams
  float alpha = 0;
};

// A thread's scratch for linear: decoded weights, and the sums of a block of rows.
constexpr int64_t linear_scratch_bytes(int64_t rows) {
  return kDecodedBytes + kReusedPanels * 64 * rows;
}
// The same on tiles, for up to so many rows: decoded weights, four tiles, and sums, of four tiles
// or, with many rows, of a group of panels. Blocks of rows and groups of panels are pairs of tiles.
constexpr int64_t amx_scratch_bytes(int64_t rows) {
  const int64_t most = kAmxPanels * ((rows + 2 * kAmxRows - 1) / (2 * kAmxRows) * (2 * kAmxRows));
  const int64_t sums = rows <= kAmxFewRows    ? 4 * 16 * kAmxRows
                       : most < kAmxPanelRows ? most
                                              : kAmxPanelRows;
  return kAmxDecodedBytes + 4 * kAmxTileBytes + sums * 64;
}

// The order of reads: plain, as the core itself fetches; with prefetch instructions into L1, past
// the other caches; or four parts at once, as the product reads four panels.
enum class ReadWay : uint8_t { plain, into_l1, four_into_l1, four_into_l2 };

// A thread's scratch for a grouped linear layer: decoded columns of some panels with their scales
// and minimums, and for each row the panels' sums, or a panel's and those of an unfinished group.
inline constexpr int64_t kGroupedPanels = 4;
constexpr int64_t grouped_scratch_bytes(int64_t rows) {
  return kGroupedPanels * (kGroupedCols * 32 + kGroupedCols / 8 * 2 * 64 + 64 * rows);
}

// Some columns of one chunk of a causal convolution. y may be x.
struct ConvJob {
  const float* x = nullptr;  // row 0
  int64_t x_stride = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  const float* weight = nullptr;  // [cols][width]
  const float* bias = nullptr;    // [cols] or null
  int64_t width = 0;              // at most kMostConvWidth
  bool silu = false;
  bool fresh = false;              // the inputs before are zeros
  float* const* inputs = nullptr;  // [width - 1], of each the row of the state, of these columns
};

// Some columns of a head's recurrence over one chunk, at most kScanColumns. out may be the values.
struct ScanJob {
  const float* queries = nullptr;  // of row 0, the head's
  const float* keys = nullptr;
  int64_t key_stride = 0;  // from row to row, of both
  int64_t query_stride = 0;
  const float* values = nullptr;  // of row 0, the columns
  int64_t value_stride = 0;
  const float* decays = nullptr;  // of row 0, the head's, one or one for each key
  const float* steps = nullptr;
  int64_t decay_stride = 0;
  int64_t step_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  float* state = nullptr;  // [key_dim][state_stride]
  int64_t state_stride = 0;
  int64_t key_dim = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  bool delta = false;
  bool decays_rows = false;
  float skip = 0;
};
inline constexpr int64_t kScanColumns = 64;

// Some channels of a selective scan over one chunk. out may be the steps or the values.
struct SelectiveJob {
  const float* queries = nullptr;  // of row 0
  int64_t query_stride = 0;        // from row to row
  const float* keys = nullptr;
  int64_t key_stride = 0;
  const float* values = nullptr;  // of row 0, the channels
  int64_t value_stride = 0;
  const float* steps = nullptr;
  int64_t step_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  const float* log_rates = nullptr;  // [channels][key_dim]
  bool negative_rates = false;
  const float* skip = nullptr;
  bool fresh = false;             // the state is zeros
  float* const* state = nullptr;  // [key_dim], of each the row of the state, of these channels
  float* scratch = nullptr;       // [2][key_dim][kSelectiveLanes]
  int64_t key_dim = 0;
  int64_t rows = 0;
  int64_t channels = 0;
};
inline constexpr int64_t kSelectiveLanes = 16;  // the most that a vector has

struct Ops {
  const char* name;
  Units bf16_units;       // how x is packed where it is rounded to bf16
  Units pair_units;       // the same where tiles take no part
  Units attention_units;  // and queries and weights of attention
  Units i8_units;         // and where x becomes bytes

  void (*pack_rows)(const PackJob& job);
  // Panels [begin, end) of a job, kReusedPanels at most, or kAmxPanels and kAmxPanelRows; of few
  // rows places of streams, of which there are some more (kernels/cpu/simd/streams.h). Scratch of
  // linear_scratch_bytes, or amx_scratch_bytes.
  void (*linear)(const LinearJob& job, int64_t begin, int64_t end, std::byte* scratch);

  // Rows up to which whole_bytes are of use, and the largest byte of codes by which they are for
  // up to kByteRows.
  int64_t byte_rows;
  int most_byte;
  void (*pack_whole)(const WholeJob& job);
  // Panels [begin, end), or with bytes and few rows places of byte_streams streams, of which there
  // are some more (kernels/cpu/simd/streams.h); scratch of grouped_scratch_bytes.
  void (*grouped)(const GroupedJob& job, int64_t begin, int64_t end, std::byte* scratch);

  // One partition of a job's positions; scratch of attend_floats(key_dim, value_dim). On tiles at
  // most kPartition elements of a value.
  void (*attend)(const AttentionJob& job, int64_t partition, float* scratch, AttentionSums out);
  // total += part, in the order of calls; then out [rows, heads * value_dim] = values / total.
  void (*merge)(const AttentionJob& job, AttentionSums total, AttentionSums part);
  void (*finish)(const AttentionJob& job, AttentionSums total, float* out, int64_t out_stride);

  // Adds to scores[k], k < kPartition, the sum over a job's heads, in order, of weights[head] *
  // max(0, q key) at each position of a partition that its one row attends to. Scratch as attend
  // has; room for kScoreStride scores.
  void (*index_scores)(const AttentionJob& job, const float* weights, int64_t partition,
                       float* scratch, float* scores);

  // One row each. add_norm: residual += x first.
  void (*norm)(const NormJob& job, const float* x, float* y);
  void (*add_norm)(const NormJob& job, float* residual, const float* x, float* y);
  float (*sum_squares)(const float* x, int64_t count);
  void (*add)(float* x, const float* y, int64_t count);
  void (*scale)(float* x, float factor, int64_t count);
  void (*soft_cap)(float* x, float cap, int64_t count);
  void (*clamp)(float* x, float limit, int64_t count);
  void (*causal_conv)(const ConvJob& job);
  void (*scan)(const ScanJob& job);
  void (*selective_scan)(const SelectiveJob& job);
  // activation(x) * up, or where `up` is null, activation(x).
  void (*activate)(const ActivationJob& job, const float* x, const float* up, int64_t count,
                   float* out);
  // Pairs (i, i + half), or (2 i, 2 i + 1), of one head.
  void (*rope)(float* head, const float* cos, const float* sin, int64_t half);
  void (*rope_neighbours)(float* head, const float* cos, const float* sin, int64_t half);
  void (*to_bf16)(const float* x, int64_t count, std::byte* out);
  // x / scale as codes of f8_e4m3 or f8_e5m2.
  void (*to_float8)(const float* x, int64_t count, DType dtype, float scale, std::byte* out);

  void (*encode)(const EncodeJob& job, EncodeSums* sums);
  // Largest finite magnitude as a bit pattern of `stored`, sign bit clear.
  uint32_t (*largest)(const std::byte* source, DType stored, int64_t count);
  void (*interleave)(const InterleaveJob& job);
  PackCodes* pack_codes;
  OrderCodes* order_codes;

  // Multiply-adds from registers, for the rate that the machine has; returns how many operations.
  // `seen` is changed, so that they are done.
  int64_t (*multiply_add)(Units kind, int64_t rounds, uint64_t* seen);
  // Reads every byte, for the bandwidth that the machine has; returns something of it.
  uint64_t (*read)(const std::byte* from, int64_t bytes, ReadWay way);
};

}  // namespace sluice::cpu
