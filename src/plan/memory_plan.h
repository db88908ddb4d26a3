// What a load and a run will need, before a byte of weights is read: predicted peaks by use, or a
// refusal that says what would fit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/read_shape.h"
#include "kernels/backend.h"
#include "src/kv/kv_layout.h"
#include "src/models/decoder.h"
#include "src/plan/place_rules.h"
#include "src/plan/read_plan.h"

namespace sluice {

// Room for KV blocks that have to leave the cache.
struct SwapShape {
  uint64_t host_bytes = 0;  // in memory
  uint64_t disk_bytes = 0;
  std::filesystem::path directory;  // of these
};

// What the run asks for, and of which machine.
struct RunShape {
  const Backend* backend = nullptr;  // never null when it is asked for
  int64_t max_tokens = 0;            // of all sequences together, prompt and continuation: KV slots
  int64_t longest_prompt = 0;        // rows that one step could have at most
  int64_t logits_rows = 1;           // rows whose logits are wanted at once
  uint64_t output_bytes = 0;         // results that are kept until the end
  uint64_t sampling_bytes = 0;       // what choosing tokens takes beside the logits
  int64_t block_size = 16;
  DType kv_dtype = DType::bf16;
  Compute compute = Compute::bf16;
  uint64_t spill_bytes = 0;           // that the spill cache may hold of what is quantized; 0: none
  std::vector<PlaceRule> rules = {};  // where the user wants parameters to be
  int64_t sequences = 1;              // how many share max_tokens
  io::ReadShape read = {};            // that the disk is to be asked with
  uint64_t kv_bytes = 0;              // that the KV cache takes at most; 0: as max_tokens need
  SwapShape swap = {};
  bool prompt_cache = false;     // keys and values of prompts come from files, and go there
  int64_t longest_sequence = 0;  // of these
  uint64_t input_bytes = 0;  // leased by whoever asks, from before the load to the end of the run
  uint64_t device_budget = UINT64_MAX;  // of a device with memory of its own
  // What it costs to bring it a byte from host memory, where one from disk costs 1.
  double link_cost = 0;
  uint64_t text_bytes = 0;  // of the heap, for a text or token ids that come in while it runs
  uint64_t start_peak = 0;  // that the process has had already
};

// What kernels need for steps of at most `rows` rows.
WorkspaceNeeds workspace_needs(const CausalLM& model, const KvLayout& layout, const RunShape& shape,
                               int64_t rows);

// Rope's angles for a step, which are computed in host memory.
uint64_t rope_bytes(const WorkspaceNeeds& needs);
// Of so many rows of logits, and behind them of what is found in them: the likeliest token of each
// row, and its kTopTokens largest logits.
uint64_t logits_bytes(const CausalLM& model, int64_t rows);
inline constexpr int64_t kTopTokens = 256;

// How much memory to spend for speed. The planner tries them from the largest down; results do not
// depend on them.
struct Effort {
  Staging staging;
  int64_t chunk_rows = 0;  // of a prompt, in one step
  double disk_share = 1;   // of the disk's rate that so little staging reaches
};

// Bytes of a device with memory of its own, by use. Nothing of it is used twice.
struct DevicePlan {
  uint64_t weights = 0;
  uint64_t staging = 0;  // what is being encoded, or passes
  uint64_t kv_cache = 0;
  uint64_t activations = 0;
  uint64_t workspace = 0;
  uint64_t peak() const { return weights + staging + kv_cache + activations + workspace; }
};

struct MemoryPlan {
  Effort effort;
  int64_t chunk_rows = 0;  // effort's, cut to the longest prompt
  int64_t kv_blocks = 0;
  int64_t swap_blocks = 0;         // that leave the cache: in memory
  int64_t disk_blocks = 0;         // and on disk
  Placement placement;             // as compile() takes it
  uint64_t first_sweep_bytes = 0;  // that the first pass over the model reads from disk
  uint64_t sweep_bytes = 0;        // and each later one: less, where the spill cache helps
  uint64_t host_sweep_bytes = 0;   // that each copies from host memory to the device
  DevicePlan device;               // nothing where the device's memory is the host's
  // Bytes of host memory by use. `runtime` is what the process holds already, input included, and
  // what it will hold beside the ledger's other uses.
  uint64_t start = 0;  // the largest that the process was while it read headers and tokenizer
  uint64_t runtime = 0;
  uint64_t weights = 0;
  uint64_t staging = 0;
  uint64_t kv_cache = 0;
  uint64_t swap = 0;
  uint64_t activations = 0;  // logits included
  uint64_t workspace = 0;
  uint64_t stream = 0;   // what passing weights go through; 0 when all stay
  uint64_t encoder = 0;  // where a device leaves what encoding did
  uint64_t spill = 0;    // the spill cache's index, in memory from the load on
  uint64_t kernel =
      0;  // the kernel's own, charged to a cgroup but not to the process: page tables, and slack

  uint64_t load_peak() const { return runtime + weights + staging + encoder + spill; }
  uint64_t run_peak() const {
    return runtime + weights + kv_cache + swap + activations + workspace + stream + encoder + spill;
  }
  uint64_t peak() const { return std::max({start, load_peak(), run_peak()}); }
  // Wherever they are.
  uint64_t all_weights() const { return weights + device.weights; }
  uint64_t all_kv_cache() const { return kv_cache + device.kv_cache; }
  // A pass takes as long for many rows as for one: weights come from elsewhere.
  bool streams() const { return !placement.empty(); }
  bool has(Tier tier) const { return std::ranges::find(placement, tier) != placement.end(); }
  // What a budget must have: the peak and the kernel's share.
  uint64_t needed() const { return peak() + kernel; }
};

// What the kernel takes of its own beside so many bytes of a process.
uint64_t kernel_bytes(uint64_t peak);

// Needs of one effort. `laid_out`: what lay_out() made, which all plans of one model and request
// share. `runtime`: bytes that the process holds now.
MemoryPlan predict_memory(const CausalLM& root, const ReadPlan& laid_out, const RunShape& shape,
                          const Effort& effort, uint64_t runtime, const Placement& placement = {});

// The largest effort that fits `budget` with everything resident; if there is none, a part of the
// weights is streamed. Throws Error(no_fit) that
// names the smallest budget that would work.
MemoryPlan place(const CausalLM& root, const ReadPlan& laid_out, const RunShape& shape,
                 uint64_t budget, uint64_t runtime);
// Of a run that goes on with a smaller budget: what stays of the weights becomes less, everything
// else keeps its size. Needs more than the budget when that is not enough.
MemoryPlan shrink(const MemoryPlan& now, const CausalLM& root, const ReadPlan& laid_out,
                  const RunShape& shape, uint64_t budget, uint64_t runtime);
// The needs of the smallest effort, with all that can be streamed; and with all in memory.
MemoryPlan smallest_plan(const CausalLM& root, const ReadPlan& laid_out, const RunShape& shape,
                         uint64_t runtime);
MemoryPlan smallest_resident_plan(const CausalLM& root, const ReadPlan& laid_out,
                                  const RunShape& shape, uint64_t runtime);

// How the model's layers share the KV cache.
KvLayout kv_layout(const CausalLM& model, const RunShape& shape);
// Error(refused) where the backend cannot compute with the cache of some layer.
void check_kv_supported(const KvLayout& layout, const Backend& backend);
// From one position to the next at which states are kept (BlockOptions).
inline constexpr int64_t kSnapshotTokens = 1024;

}  // namespace sluice
