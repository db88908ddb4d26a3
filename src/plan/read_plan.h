// The byte plan of a load, from headers alone: module tree x checkpoint index x quantization scheme
// x rank. Plain data: printed, tested, and carried out by src/load.
//
//   unit (embedding, a layer, ...)         storage of its parameters, one block
//     └ param                              where its codes and scales lie in that block
//   tensor (a piece of a checkpoint tensor) which param it fills, how its scales are grouped
//   span                                   one read, of a staging slot at most; in disk order
//     └ move                               rows of a piece within the span → rows of its param
//   sweep                                  tensors that stay on disk, as a pass meets them
//     └ tile                               rows of one: one read, encoded anew by each pass
//   host_sweep                             parameters that stay in host memory beside a device
//     └ tile                               rows of one: one copy by each pass
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/index.h"
#include "io/reader.h"
#include "src/formats/stored_format.h"
#include "src/memory/tier.h"
#include "src/models/registry.h"
#include "src/plan/bands.h"
#include "src/plan/expert_reuse.h"
#include "src/plan/quantize.h"

namespace sluice {

// The tier of each parameter: on the device, in host memory (each pass copies it), or on disk (each
// pass reads it). Empty: all on the device.
using Placement = std::vector<Tier>;

// The source of matrices that the checkpoint stores as [inputs, outputs].
enum class Origin : uint8_t {
  checkpoint,  // by loads only: a row has a part of every output
  spill,       // as the spill cache has them (spill_layout.h), which is written before the load
};

struct ParamPlan {
  Param* param = nullptr;
  uint32_t unit = 0;
  WeightFormat format;
  uint64_t offset = 0;   // its planes in the unit's storage of the tier, multiple of 64
  uint64_t bytes = 0;    // of its planes
  uint64_t storage = 0;  // of these with padding, multiple of 64
  Tier tier = Tier::device;
  Table table = Table::none;
  // Some piece has its rows in columns, or is a table in several tensors: it cannot be streamed.
  bool transposed = false;

  // Rows of a step up to which the CPU multiplies it if it lies in host memory beside a device: the
  // weights of more cross the link. 0: they always do.
  int64_t host_rows = 0;

  // No storage of its own: each sweep reads it anew, as far as no cache has it.
  bool streamed() const { return tier == Tier::disk || tier == Tier::cached; }
  // Returns whether the CPU beside a device multiplies it: it is stored as that needs it, and
  // unpacked by the device where it crosses the link.
  bool is_for_host() const { return tier == Tier::host && host_rows > 0; }
  bool is_unpacked() const { return is_for_host() && format.layout == WeightLayout::rows; }
  // The format in its tier, and the bytes of `bytes` and `storage` there.
  WeightFormat kept_format() const;
  uint64_t kept_bytes() const;
  uint64_t kept_storage() const;
  bool only_looked_up() const { return table == Table::looked_up; }
};

// A piece as this rank reads it: whole rows of the file, of which a cut or a view keeps a part; of
// the spill cache the bytes of a row in all planes, in place of an offset its number. If
// the view has runs, a row is everything from one run to the next; a row of a transposed matrix has
// an element of each output.
struct RowsInFile {
  uint64_t begin = 0;      // file offset of the first row
  uint64_t row_bytes = 0;  // of a whole row
  int64_t rows = 0;
  int64_t group = 0;       // rows that must be encoded together
  uint64_t skip = 0;       // bytes of a row before the part that is wanted
  uint64_t end = 0;        // of the stored matrix: the last row may be shorter
  int64_t piece_rows = 1;  // of the piece in each row

  uint64_t bytes() const { return bytes(0, rows); }
  uint64_t offset(int64_t row) const { return begin + static_cast<uint64_t>(row) * row_bytes; }
  uint64_t bytes(int64_t first, int64_t count) const {
    return std::min(offset(first + count), end) - offset(first);
  }
};

struct TensorPlan {
  const io::StoredTensor* stored = nullptr;
  uint32_t param = 0;
  uint32_t piece = 0;
  ScaleGroup group = ScaleGroup::none;
  Origin origin = Origin::checkpoint;
  bool transposed = false;  // in the checkpoint, from which it is read
  RowsInFile rows = {};
  // The stored matrix, and which of its planes the tensor is.
  std::shared_ptr<const StoredMatrix> matrix = nullptr;
  uint32_t source = 0;
  // The tensors of the other planes, which follow one another; set for codes.
  uint32_t first_other = 0;
  uint32_t others = 0;
  // A scale of the tensor: spans to see before the first can be encoded. The tensor is read twice
  // when it exceeds the ring. Also for transposed tensors whose rows have scales of their own.
  uint32_t measure_spans = 0;
  uint32_t matrices = 1;  // of the stored tensor: more in a stack
  // The first tensor of the plan whose tiles have the same sizes: of experts there are many.
  uint32_t alike = 0;
  uint64_t amax_offset = 0;  // transposed: of float32[rows] in an area of plan.row_amax
  bool amax_known = false;   // and the largest value is given
  bool read_twice = false;

  const StoredPlane& plane() const { return matrix->planes[source]; }
  uint64_t matrix_begin(const Piece& of) const;  // file offset
  // Returns whether its columns change places once all rows of the file have come.
  bool orders_columns() const {
    return plane().plane == Plane::codes && plane().input_major() && !matrix->order.empty();
  }
  // One pass over a transposed matrix cannot find the scales of rows either. The spill cache knows
  // them.
  bool is_measured() const {
    if (origin == Origin::spill || amax_known) return false;
    return has_tensor_scale(group) || (transposed && group == ScaleGroup::row);
  }
};

struct Move {
  uint32_t tensor = 0;
  // Rows within this rank's cut of the piece; columns where it is transposed, since each row of the
  // file then has parts of all its rows.
  int64_t first_row = 0;
  int64_t rows = 0;
  uint64_t offset = 0;  // bytes from the span's start to the first wanted element
};

struct Span {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint32_t unit = 0;
  uint32_t first_move = 0;
  uint32_t moves = 0;
  bool measure = false;  // first look for the tensor's largest value
  bool encode = true;
  // Ranks that need parts of the same rows read them once: as many spans as there are ranks, one
  // for each, follow one another, and the ranks exchange their parts. -1: each reads for itself.
  int32_t reader = -1;
};

// A tensor of the sweep in tiles of `tile_rows` rows; the last one, or the last of each run, may be
// smaller. Tiles are counted over the whole sweep. They are not stored, since there may be a
// million; ReadPlan::tile() computes them.
struct TiledTensor {
  uint32_t tensor = 0;
  uint32_t first_tile = 0;
  uint32_t tiles = 0;
  int64_t tile_rows = 0;
  // Rows of a run. Runs are read apart, so that no tile has rows of two; one run: all rows are read
  // together.
  int64_t run_rows = 0;
  uint32_t run_tiles = 0;
  // Each rank has parts of its rows: ranks whose sweeps are alike read some rows of a tile each,
  // and exchange the parts.
  bool exchanged = false;

  int64_t first_row(uint32_t tile) const {
    uint32_t i = tile - first_tile;
    return i / run_tiles * run_rows + i % run_tiles * tile_rows;
  }
  uint32_t tile_of(int64_t row) const {
    return first_tile + static_cast<uint32_t>(row / run_rows) * run_tiles +
           static_cast<uint32_t>(row % run_rows / tile_rows);
  }
};

// A parameter of the host sweep in tiles.
struct TiledParam {
  uint32_t param = 0;
  uint32_t first_tile = 0;
  uint32_t tiles = 0;
  int64_t tile_rows = 0;
};

struct Tile {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
  uint32_t unit = 0;
  Move move;
};

// The parameters of Tier::cached that are one expert's, some of params[first_param, end_param).
struct CachedExpert {
  uint32_t first_param = 0;
  uint32_t end_param = 0;
  uint32_t unit = 0;
  uint64_t bytes = 0;  // of a slot: tile_bytes() of all
};

struct UnitPlan {
  std::string name;
  uint64_t storage_bytes = 0;  // codes and scales, in the memory of this rank's device
  uint64_t host_bytes = 0;     // and in host memory, where that is another
  uint64_t read_bytes = 0;     // from the checkpoint
};

// Memory for the row maxima of transposed tensors: one area for tensors that share reads, from
// their first span to their last, and as many areas as can be in flight at once.
struct RowAmax {
  uint64_t area_bytes = 0;
  uint64_t users = 0;
  uint64_t areas = 0;
  uint64_t bytes() const { return area_bytes * areas; }
};

struct ReadPlan {
  Rank rank;
  bool own_files = false;  // of this rank, in which other ranks have no part
  Bands bands;             // of exchanged rows
  std::vector<UnitPlan> units;
  std::vector<ParamPlan> params;
  std::vector<TensorPlan> tensors;
  Origin origin = Origin::checkpoint;  // of input-major matrices
  MatrixLayout matrix_layout = MatrixLayout::packed;
  std::vector<uint32_t> disk_order;  // of the tensors
  std::vector<Span> spans;           // of the load, in disk order
  uint64_t load_spans = 0;           // how many there are, also where plan_sizes() leaves some out
  uint64_t load_moves = 0;
  uint64_t order_bytes = 0;  // of the orders of inputs that stored matrices have
  std::vector<TiledTensor> sweep;
  std::vector<TiledParam> host_sweep;
  std::vector<CachedExpert> experts;  // in the order of the sweep
  uint64_t expert_slot_bytes = 0;     // the largest one's
  uint64_t expert_slots = 0;          // of the cache
  ExpertReuse expert_reuse;           // seen in an earlier run, or nothing
  std::vector<Move> moves;
  std::vector<std::string> ignored;                // checkpoint tensors that are known and not read
  std::vector<const io::StoredTensor*> kv_scales;  // and those that were read with the headers
  uint64_t widest_group = 0;                       // bytes of the most that must be read at once
  uint64_t slot_bytes = 0;                         // the longest span, with room for alignment
  uint64_t ring_bytes = 0;       // of all staging slots; no more than the spans can use
  uint64_t exchange_bytes = 0;   // of what a rank sends to all at once
  uint64_t tile_bytes = 0;       // storage of the largest tile of the sweep
  uint64_t host_tile_bytes = 0;  // and of the host sweep, as it crosses the link
  uint64_t unpacked_bytes = 0;   // the largest of these that the device unpacks
  RowAmax row_amax;

  // End of the tensors of disk_order, from `at` on, that are read together.
  size_t end_of_shared(size_t at) const;
  bool share_reads(const TensorPlan& a, const TensorPlan& b) const;
  // Returns whether this rank has a part of each row of the matrix, which it reads whole unless the
  // spill cache has the part.
  bool has_part_of_rows(const TensorPlan& tensor) const;
  // Returns whether a pass reads more of the checkpoint than the tensor's codes and numbers, and no
  // more of the spill cache, which has it packed then.
  bool is_packed_in_spill(const TensorPlan& tensor) const {
    return has_part_of_rows(tensor) || tensor.plane().slice_outputs > 0 ||
           tensor.matrix->reads_plane_for_each_tile();
  }
  uint64_t storage_bytes() const;                         // of the device
  uint64_t read_bytes() const;                            // by the load, with second reads
  uint64_t needed_bytes(const TensorPlan& tensor) const;  // this rank's part, as it is stored
  // Returns the bytes of weights that a decode step of so many tokens reads: all but tables that
  // are only looked up, and experts that none of them chooses.
  uint64_t step_bytes(int64_t tokens = 1) const;
  // The share of the cached experts of a step that the cache is predicted not to have: as an
  // earlier run has used them, or where a router chooses all alike.
  double expert_misses(int64_t tokens = 1) const;
  bool knows_reuse() const {
    return expert_reuse.is_known() && expert_reuse.experts == experts.size();
  }
  // Cached experts that a step uses in all layers together: fewer slots lose what the next token
  // wants.
  uint64_t experts_of_step(int64_t tokens = 1) const;
  // The view of a parameter in its unit's storage of its tier.
  Weight weight(const ParamPlan& p, std::byte* unit_storage) const;
  uint32_t sweep_tiles() const;
  const TiledTensor& tensor_of_tile(uint32_t index) const;
  uint64_t tiles_bytes(const TiledTensor& tensor) const;  // that a sweep reads of it
  Tile tile(uint32_t index) const;
  // The rows of a streamed parameter that a tile fills, and their view in memory of tile_bytes.
  int64_t tile_row(const Tile& tile) const;
  Weight tile_weight(const Tile& tile, std::byte* memory) const;
  // Rows of codes are read with those of the weight's other planes: the move of plane `other` of
  // them, and what is read for it.
  Move other_move(const Move& codes, uint32_t other) const;
  io::Extent other_extent(const Move& codes, uint32_t other) const;
  size_t most_extents() const;  // of a read
  uint32_t host_sweep_tiles() const;
  const TiledParam& param_of_host_tile(uint32_t index) const;
};

// The share of steps of so many tokens that use a parameter: each token's router chooses by itself.
double used_share(const Param& param, int64_t tokens);

// Bytes of a tile of `rows` rows of a parameter, which are whole panels.
uint64_t tile_bytes(const ParamPlan& param, int64_t rows);
// The view of such a tile.
Weight tile_view(const ParamPlan& param, int64_t rows, std::byte* memory);
// The same of a tile as host memory has it.
uint64_t host_tile_bytes(const ParamPlan& param, int64_t rows);
Weight host_tile_view(const ParamPlan& param, int64_t rows, std::byte* memory);

// Planes of a weight that the spill cache has in its file, each with extents of its own: codes, and
// scales and zeros of groups.
size_t planes_in_spill(const WeightFormat& format);

// Bytes of a row of one of a matrix's tensors, as they are stored.
uint64_t stored_row_bytes(const TensorPlan& tensor);

// Bounds of the bytes of a slot that some rows of codes need with the other planes' rows.
struct TileCost {
  uint64_t fixed = 0;
  uint64_t row = 0;
};
TileCost tile_cost(const ReadPlan& plan, const TensorPlan& codes, const RowsInFile& rows);

}  // namespace sluice
