// The memory plan of a load and a run, before a byte of weights is read: predicted peaks by use, or
// a refusal with the smallest budget that works.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/read_shape.h"
#include "kernels/backend.h"
#include "src/kv/kv_layout.h"
#include "src/models/decoder.h"
#include "src/plan/compile.h"
#include "src/plan/place_rules.h"
#include "src/plan/sweep.h"

namespace sluice {

// Room for evicted KV blocks [bytes].
struct SwapShape {
  uint64_t host_bytes = 0;  // in memory
  uint64_t disk_bytes = 0;
  std::filesystem::path directory;  // of disk_bytes
};

// Memory of the draft model beside a model [bytes]. The draft model is loaded first, and stays.
struct DraftMemory {
  uint64_t host = 0;
  uint64_t loading = 0;  // peak of the host's memory while it is loaded
  uint64_t device = 0;
};

// A run's request, and the backend that is to run it.
struct RunShape {
  const Backend* backend = nullptr;  // never null when it is asked for
  int64_t max_tokens = 0;            // KV slots of all sequences, prompt and continuation
  int64_t longest_prompt = 0;        // most rows of one step
  int64_t least_rows = 1;            // a step has at least so many of them, whatever they take
  int64_t logits_rows = 1;           // rows whose logits are wanted at once
  uint64_t output_bytes = 0;         // results that are kept until the end
  uint64_t sampling_bytes = 0;       // memory of sampling beside the logits
  int64_t block_size = 16;
  DType kv_dtype = DType::bf16;
  Compute compute = Compute::bf16;
  uint64_t spill_bytes = 0;           // limit of the spill cache; 0: none
  std::vector<PlaceRule> rules = {};  // places given by the user (--place)
  int64_t sequences = 1;              // how many share max_tokens
  io::ReadShape read = {};            // read shape for the disk
  uint64_t kv_bytes = 0;              // limit of the KV cache; 0: as max_tokens need
  SwapShape swap = {};
  bool prompt_cache = false;     // keys and values of prompts are read from and written to files
  int64_t longest_sequence = 0;  // tokens, of such a prompt
  uint64_t input_bytes = 0;      // leased by the caller, from before the load to the end of the run
  uint64_t device_budget = UINT64_MAX;  // of a device with memory of its own
  // Cost of a byte from host memory, relative to a byte from disk: over the link, and where the
  // CPU multiplies it.
  double link_cost = 0;
  double host_cost = 0;
  // The CPU beside a device with memory of its own, for weights in host memory; null: it computes
  // nothing. Which they are, the laid out plan says (host_rows.h).
  const Backend* host = nullptr;
  uint64_t text_bytes = 0;  // heap for a text or token ids that are read during the run
  uint64_t start_peak = 0;  // peak of the process so far
  DraftMemory draft = {};
  bool grouped = false;  // weights are quantized in groups while they are loaded
};

// Bounds of the kernels' scratch for steps of at most `rows` rows.
WorkspaceNeeds workspace_needs(const CausalLM& model, const KvLayout& layout, const RunShape& shape,
                               int64_t rows);

// The same of the CPU beside a device.
WorkspaceNeeds host_workspace_needs(const CausalLM& model, const HostProducts& products);

// Bytes that sums over ranks take of their devices' memory; 0: their tensors are in the host's.
uint64_t gathered_bytes(const CausalLM& model, const RunShape& shape);

// Bytes of a step's rope angles, which are computed in host memory.
uint64_t rope_bytes(const WorkspaceNeeds& needs);
// Bytes of `rows` rows of logits, with room behind them for the likeliest token of each row and its
// kTopTokens largest logits.
uint64_t logits_bytes(const CausalLM& model, int64_t rows);
// Stages of a pipeline pass their rows on in such parts, which the logits' memory has room for.
inline constexpr uint64_t kPassedBytes = 64 * KiB;
// The offset of this rank's part of the logits in these bytes, if there are several ranks; and the
// columns from one of its rows to the next.
uint64_t part_of_logits(const CausalLM& model, int64_t rows);
int64_t part_stride(const CausalLM& model);
inline constexpr int64_t kTopTokens = 256;

// Sizes of the buffers that cost memory and bring speed. The planner tries several, from the
// largest down; results do not depend on them.
struct BufferSizes {
  Staging staging;
  int64_t chunk_rows = 0;  // rows of a prompt in one step
  double disk_share = 1;   // share of the disk's rate that this staging reaches
};

// Bytes of a device with memory of its own, by use. No byte has two uses.
struct DevicePlan {
  uint64_t weights = 0;
  uint64_t staging = 0;  // buffers of encoding and of streamed tiles
  uint64_t kv_cache = 0;
  uint64_t activations = 0;
  uint64_t workspace = 0;
  uint64_t draft = 0;
  uint64_t peak() const { return weights + staging + kv_cache + activations + workspace + draft; }
};

struct MemoryPlan {
  BufferSizes buffers;
  int64_t chunk_rows = 0;  // that of `buffers`, cut to the longest prompt
  int64_t kv_blocks = 0;
  int64_t swap_blocks = 0;             // evicted KV blocks in host memory
  int64_t disk_blocks = 0;             // evicted KV blocks on disk
  Placement placement;                 // as compile() takes it
  uint64_t expert_slots = 0;           // of the cache, as compile() takes them
  Origin origin = Origin::checkpoint;  // of input-major matrices, as lay_out() takes it
  uint64_t first_sweep_bytes = 0;      // read from disk by the first pass over the model
  uint64_t sweep_bytes = 0;            // read by each later pass: less with a spill cache
  uint64_t batch_sweep_bytes = 0;      // the same where each sequence has a token in the pass
  // Bytes of a pass of few rows: copied from host memory to the device, and multiplied by the CPU
  // beside it.
  uint64_t host_sweep_bytes = 0;
  uint64_t host_multiplied_bytes = 0;
  HostProducts host_products;
  DevicePlan device;  // nothing where the device's memory is the host's
  // Bytes of host memory by use. `runtime` is what the process holds already, input included, and
  // will hold beside the ledger's other uses.
  uint64_t start = 0;  // peak of the process while it read headers and tokenizer
  uint64_t runtime = 0;
  uint64_t weights = 0;
  uint64_t staging = 0;
  uint64_t kv_cache = 0;
  uint64_t swap = 0;
  uint64_t activations = 0;  // logits included
  uint64_t workspace = 0;
  uint64_t stream = 0;         // slots and tiles of streamed weights, and experts that are cached
  uint64_t encoder = 0;        // memory for encoding results from a device
  uint64_t spill = 0;          // indices of the spill directory's files, in memory from the load on
  uint64_t spill_writing = 0;  // least memory to write the spill cache, before weights are loaded
  uint64_t draft = 0;          // the draft model, from before the load on
  uint64_t draft_load = 0;     // and its peak while it is loaded
  uint64_t kernel =
      0;  // the kernel's own, charged to a cgroup but not to the process: page tables, and slack

  uint64_t load_peak() const { return runtime + draft + weights + staging + encoder + spill; }
  uint64_t run_peak() const {
    return runtime + draft + weights + kv_cache + swap + activations + workspace + stream +
           encoder + spill;
  }
  // Memory to write the spill cache: as much as is needed for the load or the run later.
  uint64_t room_to_write() const {
    const uint64_t kept = runtime + draft + encoder + spill;
    return std::max({spill_writing, load_peak() - kept, run_peak() - kept});
  }
  uint64_t peak() const {
    const uint64_t writing = runtime + draft + encoder + spill + spill_writing;
    return std::max({start, runtime + draft_load, writing, load_peak(), run_peak()});
  }
  // Bytes of all that a token meets, without what the CPU beside the device multiplies.
  uint64_t met_by_device(uint64_t all) const { return all - std::min(all, host_multiplied_bytes); }
  // Wherever they are.
  uint64_t all_weights() const { return weights + device.weights; }
  uint64_t all_kv_cache() const { return kv_cache + device.kv_cache; }
  // A pass takes as long for many rows as for one: weights come from elsewhere.
  bool streams() const { return !placement.empty(); }
  bool reads_disk() const { return has(Tier::disk) || has(Tier::cached); }
  bool has(Tier tier) const { return std::ranges::find(placement, tier) != placement.end(); }
  // The least budget: the peak and the kernel's share.
  uint64_t needed() const { return peak() + kernel; }
};

// Bytes that the kernel charges beside a process of `peak` bytes.
uint64_t kernel_bytes(uint64_t peak);

// All that follow take `laid_out`, which lay_out() made and all plans of one model and request
// share: afterwards it has the placement that was looked at last. `runtime`: bytes that the process
// holds now.

// Returns the plan with the largest buffers that fit `budget` with everything resident; if there is
// none, a part of the weights is streamed. Throws Error(no_fit) that names the smallest budget that
// would work.
MemoryPlan place(const CausalLM& root, ReadPlan& laid_out, const RunShape& shape, uint64_t budget,
                 uint64_t runtime);
// The same; nullopt where no such plan fits.
std::optional<MemoryPlan> try_place(const CausalLM& root, ReadPlan& laid_out, const RunShape& shape,
                                    uint64_t budget, uint64_t runtime);
// Returns whether place() would keep everything resident; cheaper.
bool can_be_resident(const CausalLM& root, ReadPlan& laid_out, const RunShape& shape,
                     uint64_t budget, uint64_t runtime);
// Returns the plan of a run that goes on with a smaller budget: fewer weights stay resident,
// everything else keeps its size. It needs more than the budget when that is not enough.
MemoryPlan shrink(const MemoryPlan& now, const CausalLM& root, ReadPlan& laid_out,
                  const RunShape& shape, uint64_t budget, uint64_t runtime);
// Return the needs with the smallest buffers: with everything streamed that can be; and with
// everything resident.
MemoryPlan smallest_plan(const CausalLM& root, ReadPlan& laid_out, const RunShape& shape,
                         uint64_t runtime);
MemoryPlan smallest_resident_plan(const CausalLM& root, ReadPlan& laid_out, const RunShape& shape,
                                  uint64_t runtime);
// Returns the plan with the largest buffers for which there is room with everything resident; the
// smallest if there is none.
MemoryPlan resident_plan(const CausalLM& root, ReadPlan& laid_out, const RunShape& shape,
                         uint64_t runtime, const std::function<bool(const MemoryPlan&)>& has_room);

// Returns how the model's layers share the KV cache.
KvLayout kv_layout(const CausalLM& model, const RunShape& shape);
// Error(refused) where the backend cannot compute with the cache of some layer.
void check_kv_supported(const KvLayout& layout, const Backend& backend);
// Tokens from one position at which states are kept to the next (BlockOptions).
inline constexpr int64_t kSnapshotTokens = 1024;

}  // namespace sluice
