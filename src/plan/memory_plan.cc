#include "src/plan/memory_plan.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/kv/prompt_cache.h"
#include "src/kv/storage.h"
#include "src/memory/buffer.h"
#include "src/nn/device_group.h"
#include "src/plan/plan_lists.h"
#include "src/plan/spill_layout.h"
#include "src/plan/spill_window.h"
#include "src/plan/sweep.h"

namespace sluice {
namespace {

using AllBufferSizes = std::array<BufferSizes, 5>;
constexpr AllBufferSizes kBufferSizes{{{{2 * MiB, 32 * MiB}, 512, 1},
                                       {{2 * MiB, 16 * MiB}, 128, 0.99},
                                       {{MiB, 4 * MiB}, 32, 0.87},
                                       {{512 * KiB, 2 * MiB}, 16, 0.76},
                                       {{256 * KiB, MiB}, 8, 0.62}}};

// Rows of a prompt in one step on a device with memory of its own, whose products are faster then.
constexpr int64_t kDeviceRows = 2048;

// A disk that is fastest with less in flight needs less staging: what is in flight, and about as
// much in which reads that have arrived wait to be encoded meanwhile.
AllBufferSizes buffer_sizes_for(const io::ReadShape& read) {
  constexpr uint64_t kSlotsInFlight = 8, kMostArrived = 8 * MiB;
  const uint64_t in_flight = read.bytes_in_flight();
  AllBufferSizes all = kBufferSizes;
  for (BufferSizes& sizes : all) {
    Staging& staging = sizes.staging;
    if (staging.ring_bytes < in_flight) continue;
    staging.ring_bytes =
        std::min(staging.ring_bytes, in_flight + std::min(in_flight, kMostArrived));
    // A slot has one read at least.
    staging.slot_bytes =
        std::min(staging.slot_bytes, std::max(in_flight / kSlotsInFlight, read.request_bytes));
    sizes.disk_share = 1;
  }
  return all;
}

// The process's growth beside its leases: thread stacks, io_uring's rings, the heap of the plan,
// pages of libraries. All of the program's code is there already (map_program_code).
constexpr uint64_t kRuntimeGrowth = 128 * KiB;
constexpr uint64_t kStreamGrowth = 384 * KiB;  // of the threads that stream, too
// Kept free in a budget: what of the kernel's is not proportional, and what of the program, its
// libraries and the tokenizer is in its cache only, where a cgroup pays for it.
constexpr uint64_t kSlack = 14 * MiB;
// Limits the swap file's index: each entry costs kSwapBlockBytes of memory, and a small model's
// blocks would fit on disk by the million.
constexpr uint64_t kMostSwapBlocks = 1 << 14;
constexpr uint64_t kSwapBlockBytes = 48;
// Bytes of the heap that a block's prefix (src/kv/prefix_tree.h) takes beside its tokens.
constexpr uint64_t kPrefixBytes = 176;
// Bytes of bookkeeping for each page group of a recurrent state, and in each group for each
// sequence.
constexpr uint64_t kStateGroupBytes = 640, kSequenceBytes = 128;

}  // namespace

KvLayout kv_layout(const CausalLM& model, const RunShape& shape) {
  KvFormat format{.dtype = shape.kv_dtype, .block_size = shape.block_size};
  for (const KvScales& scales : model.kv_scales())  // those of states are nothing
    if (is_float8(format.dtype) && scales.key > 0) format.scales = scales;
  return kv_layout(model.kv_specs_of_stages(), static_cast<size_t>(model.stage().number), format);
}

void check_kv_supported(const KvLayout& layout, const Backend& backend) {
  for (size_t l = 0; l < layout.caches.size(); ++l) {
    for (size_t s = 0; s < layout.caches[l].size(); ++s)
      if (layout.groups[layout.places[l][s].group].kind != KvKind::state)
        backend.check_supported(layout.caches[l][s]);
  }
}

namespace {

// Sequences whose tokens are counted in the smallest blocks may begin one more of a larger size.
int64_t blocks_needed(const KvLayout& layout, const RunShape& shape, int64_t rows) {
  int64_t sum = 0;
  for (const KvGroup& group : layout.groups) {
    const bool larger = group.kind != KvKind::state && group.block_size > shape.block_size;
    sum += most_blocks(group, shape.max_tokens, rows, shape.sequences) +
           (larger ? shape.sequences - 1 : 0);
  }
  return sum;
}

// The uses of a plan: the device's, if it has memory of its own, else the host's.
struct Uses {
  Uses(const RunShape& shape, MemoryPlan& plan)
      : own(shape.backend->device().has_own_memory()),
        weights(own ? plan.device.weights : plan.weights),
        kv_cache(own ? plan.device.kv_cache : plan.kv_cache),
        activations(own ? plan.device.activations : plan.activations),
        workspace(own ? plan.device.workspace : plan.workspace) {}
  bool own;
  uint64_t &weights, &kv_cache, &activations, &workspace;
};

void plan_kv(const KvLayout& layout, const RunShape& shape, MemoryPlan& plan) {
  uint64_t block = layout.page_bytes();
  plan.kv_blocks = blocks_needed(layout, shape, plan.chunk_rows);
  if (shape.kv_bytes > 0) {
    if (shape.kv_bytes < block) {
      fail(ErrorKind::usage,
           "--kv-cache-memory {}: a block of the KV cache takes {}; give room for one at least, or "
           "a smaller --block-size",
           shape.kv_bytes, format_size(block));
    }
    const auto most = static_cast<int64_t>(shape.kv_bytes / block);
    // Several sequences share what there is, one after another if need be.
    if (shape.sequences == 1 && plan.kv_blocks > most) {
      fail(ErrorKind::no_fit,
           "--kv-cache-memory {} is too small: {} tokens take {}; raise it or lower the number of "
           "tokens",
           format_size(shape.kv_bytes), shape.max_tokens,
           format_size(static_cast<uint64_t>(plan.kv_blocks) * block));
    }
    plan.kv_blocks = std::min(plan.kv_blocks, most);
  }
  Uses(shape, plan).kv_cache = Buffer::charged_bytes(static_cast<uint64_t>(plan.kv_blocks) * block);
  uint64_t slot = layout.slot_bytes();
  auto blocks_in = [&](uint64_t bytes) {
    return static_cast<int64_t>(std::min(bytes / slot, kMostSwapBlocks));
  };
  plan.swap_blocks = blocks_in(shape.swap.host_bytes);
  plan.disk_blocks = blocks_in(shape.swap.disk_bytes);
  const auto swapped = static_cast<uint64_t>(plan.swap_blocks + plan.disk_blocks);
  const uint64_t prefix = kPrefixBytes + static_cast<uint64_t>(shape.block_size) * sizeof(int32_t);
  plan.runtime +=
      swapped * kSwapBlockBytes + (static_cast<uint64_t>(plan.kv_blocks) + swapped) * prefix;
  plan.swap = Buffer::charged_bytes(static_cast<uint64_t>(plan.swap_blocks) * slot);
  if (plan.disk_blocks > 0) plan.swap += Buffer::charged_bytes(SwapFile::memory_bytes(slot));
  const auto states = std::ranges::count(layout.groups, KvKind::state, &KvGroup::kind);
  plan.runtime += static_cast<uint64_t>(states) *
                  (kStateGroupBytes + static_cast<uint64_t>(shape.sequences) * kSequenceBytes);
  if (shape.prompt_cache) plan.swap += Buffer::charged_bytes(PromptCache::memory_bytes(slot));
}

// Adds the memory of what the CPU computes beside a device.
void plan_host(const CausalLM& model, const RunShape& shape, MemoryPlan& plan) {
  const HostProducts& products = plan.host_products;
  if (products.rows == 0) return;
  const auto floats = static_cast<uint64_t>(products.inputs + products.outputs);
  plan.activations +=
      Buffer::charged_bytes(floats * sizeof(float)) +
      Buffer::charged_bytes(Activations::bytes(model.spec(), products.rows, model.rank()));
  // A CPU's memory is the host's: it calls it the device's.
  plan.workspace += Buffer::charged_bytes(
      shape.host->kernels_bytes(host_workspace_needs(model, products)).device);
}

}  // namespace

uint64_t gathered_bytes(const CausalLM& model, const RunShape& shape) {
  const int ranks = model.rank().size;
  return ranks > 1 && shape.backend->device().has_own_memory() ? DeviceGroup::bytes(ranks) : 0;
}

namespace {

void plan_compute(const CausalLM& model, const KvLayout& layout, const RunShape& shape,
                  MemoryPlan& plan) {
  Uses uses(shape, plan);
  WorkspaceNeeds needs = workspace_needs(model, layout, shape, plan.chunk_rows);
  uint64_t logits = logits_bytes(model, std::min(shape.logits_rows, plan.chunk_rows));
  uint64_t rows = Activations::bytes(model.spec(), plan.chunk_rows, model.rank());
  uses.activations += Buffer::charged_bytes(rows) + Buffer::charged_bytes(logits);
  for (uint64_t bytes : {rope_bytes(needs), shape.output_bytes, shape.sampling_bytes})
    plan.activations += Buffer::charged_bytes(bytes);
  if (uses.own) {  // copies of what the host looks at
    plan.activations += Buffer::charged_bytes(logits);
    plan.activations +=
        Buffer::charged_bytes(Activations::host_bytes(model.spec(), plan.chunk_rows));
  }
  WorkspaceBytes workspace = shape.backend->kernels_bytes(needs);
  uses.workspace += Buffer::charged_bytes(workspace.device);
  uses.workspace += Buffer::charged_bytes(gathered_bytes(model, shape));
  plan.workspace += Buffer::charged_bytes(workspace.host);
  plan_host(model, shape, plan);
}

}  // namespace

WorkspaceNeeds workspace_needs(const CausalLM& model, const KvLayout& layout, const RunShape& shape,
                               int64_t rows) {
  WorkspaceNeeds needs = model.workspace_needs(rows);
  needs.grouped = needs.grouped || shape.grouped;
  needs.groups = std::ssize(layout.groups);
  needs.sequences = std::min(shape.sequences, rows);
  needs.longest = shape.longest_sequence > 0 ? shape.longest_sequence : shape.max_tokens;
  needs.block_size = shape.block_size;
  return needs;
}

WorkspaceNeeds host_workspace_needs(const CausalLM& model, const HostProducts& products) {
  return model.workspace_needs(products.rows);
}

uint64_t part_of_logits(const CausalLM& model, int64_t rows) {
  const uint64_t row = static_cast<uint64_t>(model.logits_cols()) * sizeof(float) +
                       (1 + kTopTokens) * sizeof(TokenLogit) + sizeof(int32_t);
  return round_up(static_cast<uint64_t>(rows) * row, 64);
}

int64_t part_stride(const CausalLM& model) {
  int64_t widest = model.head_cols();
  for (int r = 0; r < model.rank().size; ++r) widest = std::max(widest, model.head_share(r).count);
  return widest;
}

uint64_t logits_bytes(const CausalLM& model, int64_t rows) {
  uint64_t all = part_of_logits(model, rows);
  if (model.stage().all.size() > 1) all = std::max(all, kPassedBytes);
  if (model.rank().size == 1) return all;
  return all + static_cast<uint64_t>(rows * part_stride(model)) * sizeof(float);
}

uint64_t rope_bytes(const WorkspaceNeeds& needs) {
  return 2 * static_cast<uint64_t>(needs.max_rows * needs.rope_cols) * sizeof(float);
}

// One 8-byte entry for each 4 KiB page; huge pages keep a table in reserve.
uint64_t kernel_bytes(uint64_t peak) { return peak / 512 + kSlack; }

namespace {

// Bytes of a sweep, at the disk's full rate.
double sweep_cost(const MemoryPlan& plan, const RunShape& shape) {
  return static_cast<double>(plan.sweep_bytes) / plan.buffers.disk_share +
         static_cast<double>(plan.host_sweep_bytes) * shape.link_cost +
         static_cast<double>(plan.host_multiplied_bytes) * shape.host_cost;
}

// The share of a sweep's cost that a cheaper setting must not exceed. Smaller gains are not seen,
// and the load becomes slower.
constexpr double kWorthwhile = 0.99;

// Predicts and compares plans for one request; holds what they share.
class PlanSearch {
 public:
  PlanSearch(const CausalLM& root, ReadPlan& laid_out, const RunShape& shape, uint64_t runtime)
      : root_(root),
        shape_(shape),
        runtime_(runtime),
        read_(laid_out),
        spill_(largest_spill_layout(read_)),
        spill_writing_(read_.origin == Origin::spill ? least_to_write(read_, spill_) : 0),
        choice_(place_choice(read_, shape.rules, own_memory())),
        least_(choose_placement(read_, room(0, 0), choice_)) {
    for (const ParamPlan& p : read_.params) all_weights_ += p.storage;
  }

  MemoryPlan resident(const BufferSizes& sizes) { return predict(sizes, {}); }
  // Streams all weights that may be streamed.
  MemoryPlan streaming(const BufferSizes& sizes) { return predict(sizes, least_); }

  // Returns the plan for what compile() would make with these settings; compiles nothing.
  MemoryPlan predict(const BufferSizes& sizes, const Placement& placement,
                     uint64_t expert_slots = 0) {
    look_at(sizes.staging, placement, expert_slots);
    MemoryPlan plan;
    plan.placement = placement;
    plan.expert_slots = read_.expert_slots;
    plan.origin = read_.origin;
    plan.buffers = sizes;
    plan.chunk_rows = std::clamp<int64_t>(shape_.longest_prompt, 1,
                                          std::max(sizes.chunk_rows, shape_.least_rows));
    plan.start = shape_.start_peak;
    const PlanLists& lists = looked_at_.lists;
    plan.draft = shape_.draft.host;
    plan.draft_load = shape_.draft.loading;
    plan.device.draft = shape_.draft.device;
    plan.runtime = runtime_ + kRuntimeGrowth + lists.plan + lists.kept +
                   (plan.reads_disk() || plan.origin == Origin::spill ? kStreamGrowth : 0) +
                   shape_.text_bytes + Buffer::charged_bytes(shape_.input_bytes);
    plan_streams(plan);
    Uses uses(shape_, plan);
    for (const UnitPlan& u : read_.units) {
      uses.weights += Buffer::charged_bytes(u.storage_bytes);
      plan.weights += Buffer::charged_bytes(u.host_bytes);
    }
    WorkspaceBytes encoder = shape_.backend->encoder_bytes(read_.slot_bytes);
    plan.device.staging += Buffer::charged_bytes(encoder.device);
    plan.encoder = Buffer::charged_bytes(encoder.host);
    plan.staging = read_.ring_bytes + lists.load;
    if (read_.exchange_bytes > 0) plan.staging += Buffer::charged_bytes(read_.exchange_bytes);
    if (read_.row_amax.areas > 0) plan.staging += Buffer::charged_bytes(read_.row_amax.bytes());
    const KvLayout layout = kv_layout(root_, shape_);
    plan_kv(layout, shape_, plan);
    plan_compute(root_, layout, shape_, plan);
    plan.kernel = kernel_bytes(plan.peak());
    return plan;
  }

  MemoryPlan smallest() {
    MemoryPlan streamed = streaming(kBufferSizes.back());
    MemoryPlan resident = this->resident(kBufferSizes.back());
    bool smaller = scarce(streamed) < scarce(resident);
    return leaves() || smaller ? streamed : resident;
  }

  // Returns whether there is room for all weights, if nothing else took any.
  bool may_be_resident(uint64_t budget) const { return all_weights_ <= limit(budget); }
  bool fits(const MemoryPlan& plan, uint64_t budget) const {
    return plan.needed() <= budget && plan.device.peak() <= shape_.device_budget;
  }
  // Bytes that a plan needs of the memory that holds the weights. limit(): bytes that there are.
  uint64_t scarce(const MemoryPlan& plan) const {
    return own_memory() ? plan.device.peak() : plan.needed();
  }
  uint64_t limit(uint64_t budget) const { return own_memory() ? shape_.device_budget : budget; }
  bool own_memory() const { return shape_.backend->device().has_own_memory(); }

  // Returns whether all weights can be streamed that the user has placed on disk.
  bool can_stream() const {
    for (size_t i = 0; i < least_.size(); ++i)
      if ((least_[i] == Tier::disk || least_[i] == Tier::cached) && read_.params[i].transposed)
        return false;
    return true;
  }

  // Returns whether the user placed weights outside this memory, so that not all can be resident.
  bool leaves() const {
    return std::ranges::any_of(shape_.rules, [&](const PlaceRule& r) {
      return r.tier == Tier::disk || r.tier == Tier::cached ||
             (r.tier == Tier::host && own_memory());
    });
  }

  // The same plan with as many rows as a device wants, where a share of its memory has room.
  MemoryPlan with_device_rows(MemoryPlan plan, uint64_t budget) {
    if (!own_memory() || plan.chunk_rows < plan.buffers.chunk_rows) return plan;
    BufferSizes wide = plan.buffers;
    wide.chunk_rows = std::max(wide.chunk_rows, kDeviceRows);
    MemoryPlan wider = resident(wide);
    const uint64_t rows = wider.device.activations + wider.device.workspace;
    return rows <= shape_.device_budget / 4 && fits(wider, budget) ? wider : plan;
  }

  // A sweep costs the same for one row as for many: as many rows as a share of the budget allows.
  BufferSizes with_more_rows(const BufferSizes& sizes, uint64_t budget) {
    BufferSizes wide = sizes;
    for (wide.chunk_rows = shape_.longest_prompt; wide.chunk_rows > sizes.chunk_rows;
         wide.chunk_rows = ceil_div(wide.chunk_rows, 2)) {
      MemoryPlan plan = streaming(wide);
      uint64_t rows = own_memory() ? plan.device.activations + plan.device.workspace
                                   : plan.activations + plan.workspace;
      if (rows <= limit(budget) / 4 && fits(plan, budget)) return wide;
    }
    return sizes;
  }

  // Keeps as many weights in memory as the budget has room for. Needs more than the budget if not
  // even what must stay fits.
  MemoryPlan filling(const BufferSizes& sizes, uint64_t budget) {
    MemoryPlan plan = streaming(sizes);
    if (!fits(plan, budget)) return plan;
    uint64_t weights = room_in(limit(budget), scarce(plan));
    uint64_t host = own_memory() ? room_in(budget, plan.needed()) : 0;
    // Device memory for tiles from the disk is free for weights if no tiles come from there.
    if (own_memory()) {
      MemoryPlan no_disk = predict(sizes, choose_placement(read_, room(0, UINT64_MAX), choice_));
      weights = std::max(weights, room_in(limit(budget), no_disk.device.peak()));
    }
    while (weights > 0 || host > 0) {
      Placement placement = choose_placement(read_, room(weights, host), choice_);
      MemoryPlan filled = predict(sizes, placement, slots_in(placement, weights));
      if (fits(filled, budget)) return filled;
      if (filled.device.peak() > shape_.device_budget && weights == 0) {
        host = 0;  // there is no room for its tiles
      } else if (scarce(filled) > limit(budget) || host == 0) {
        lessen(weights, scarce(filled), limit(budget));
      } else {
        lessen(host, filled.needed(), budget);
      }
    }
    return plan;
  }

 private:
  // Sums over all parameters and tensors of a placement, which plans that differ in their rows
  // share.
  struct LookedAt {
    bool is_valid = false;
    Staging staging;
    Placement placement;
    uint64_t expert_slots = 0;  // as they were asked for
    PlanLists lists = {};
    StreamMemory stream = {};
    uint64_t first_sweep_bytes = 0, sweep_bytes = 0;
    uint64_t host_sweep_bytes = 0, host_multiplied_bytes = 0;
    std::optional<SpillLayout> part = {};  // that fits the spill cache, where not all does
  };

  // Returns the slots for experts that `weights` bytes have room for. `read_` has that placement
  // then, without sizes.
  uint64_t slots_in(const Placement& placement, uint64_t weights) {
    looked_at_.is_valid = false;
    return expert_slots(read_, placement, least_, weights);
  }

  // Gives `read_` the sizes that compile() would make with these settings.
  void look_at(const Staging& staging, const Placement& placement, uint64_t expert_slots) {
    LookedAt& at = looked_at_;
    if (at.is_valid && at.staging == staging && at.placement == placement &&
        at.expert_slots == expert_slots)
      return;
    at = {
        .is_valid = true, .staging = staging, .placement = placement, .expert_slots = expert_slots};
    plan_sizes(read_, staging, placement, expert_slots);
    at.lists = plan_lists(read_);
    at.first_sweep_bytes = at.sweep_bytes = sweep_bytes(read_, {});
    at.host_sweep_bytes = host_sweep_bytes(read_);
    at.host_multiplied_bytes = host_multiplied_bytes(read_);
    if (placement.empty()) return;
    at.stream = stream_memory(read_, own_memory());
    if (shape_.spill_bytes == 0 || spill_.tensors.empty()) return;
    if (spill_.file_bytes() > shape_.spill_bytes) at.part = spill_layout(read_, shape_.spill_bytes);
    at.sweep_bytes = sweep_bytes(read_, spilled());
  }
  // Tensors that the spill cache has after the first pass.
  const SpillLayout& spilled() const { return looked_at_.part ? *looked_at_.part : spill_; }

  // Adds the bytes that `read_` streams, and the memory that streaming takes.
  void plan_streams(MemoryPlan& plan) const {
    plan.first_sweep_bytes = looked_at_.first_sweep_bytes;
    plan.sweep_bytes = plan.batch_sweep_bytes = looked_at_.sweep_bytes;
    plan.host_sweep_bytes = looked_at_.host_sweep_bytes;
    plan.host_multiplied_bytes = looked_at_.host_multiplied_bytes;
    plan.host_products = host_products(read_, plan.chunk_rows);
    const bool needs_spill = read_.origin == Origin::spill && spill_.index_bytes > 0;
    // A file may be there that holds more than this run would write.
    if (spill_.index_bytes > 0 && (needs_spill || (plan.streams() && shape_.spill_bytes > 0)))
      plan.spill = Buffer::charged_bytes(spill_.index_bytes) + spill_.list_bytes();
    if (needs_spill) plan.spill_writing = Buffer::charged_bytes(spill_writing_);
    if (!plan.streams()) return;
    plan.stream = looked_at_.stream.host() + looked_at_.lists.stream;
    plan.device.staging = looked_at_.stream.device();
    const int64_t tokens = std::min(shape_.sequences, plan.chunk_rows);
    const SpillLayout none;
    if (tokens > 1)
      plan.batch_sweep_bytes =
          sweep_bytes(read_, shape_.spill_bytes > 0 ? spilled() : none, tokens);
  }

  // The load's staging is gone when the run begins. Page tables and rounding take their part, and
  // the load's own peak may be the higher one.
  uint64_t room_in(uint64_t limit, uint64_t needed) const {
    uint64_t room = limit - std::min(limit, needed);
    return room - std::min(room, room / 512 + read_.units.size() * 4 * KiB + 64 * KiB);
  }
  // Lessens the room after a plan that needed more than the limit.
  static void lessen(uint64_t& room, uint64_t needed, uint64_t limit) {
    uint64_t over = needed - std::min(needed, limit);
    room -= std::min(room, std::max({over, room / 256, uint64_t{1}}));
  }
  FreeBytes room(uint64_t weights, uint64_t host) const {
    return {weights, own_memory() ? std::optional(host) : std::nullopt};
  }

  const CausalLM& root_;
  const RunShape& shape_;
  uint64_t runtime_;
  ReadPlan& read_;     // with the placement that is looked at
  SpillLayout spill_;  // of everything that a placement may stream
  uint64_t spill_writing_;
  PlaceChoice choice_;
  Placement least_;           // where as little stays as can be
  uint64_t all_weights_ = 0;  // bytes of all in the device's memory
  LookedAt looked_at_;
};

}  // namespace

MemoryPlan smallest_plan(const CausalLM& root, ReadPlan& laid_out, const RunShape& shape,
                         uint64_t runtime) {
  return PlanSearch(root, laid_out, shape, runtime).smallest();
}

MemoryPlan smallest_resident_plan(const CausalLM& root, ReadPlan& laid_out, const RunShape& shape,
                                  uint64_t runtime) {
  return PlanSearch(root, laid_out, shape, runtime).resident(kBufferSizes.back());
}

MemoryPlan resident_plan(const CausalLM& root, ReadPlan& laid_out, const RunShape& shape,
                         uint64_t runtime, const std::function<bool(const MemoryPlan&)>& has_room) {
  PlanSearch search(root, laid_out, shape, runtime);
  for (const BufferSizes& sizes : buffer_sizes_for(shape.read)) {
    MemoryPlan plan = search.resident(sizes);
    MemoryPlan wide = search.with_device_rows(plan, UINT64_MAX);
    if (has_room(wide)) return wide;
    if (search.own_memory() && has_room(plan)) return plan;
  }
  return search.resident(kBufferSizes.back());
}

namespace {

// One MiB more than today's figure: the process itself is not the same to the page in every run.
int64_t enough_mib(const MemoryPlan& plan) {
  return ceil_div(static_cast<int64_t>(plan.needed() + MiB), MiB);
}

std::string draft_text(uint64_t bytes) {
  return bytes > 0 ? ", the draft model " + format_size(bytes) : std::string();
}

// The smallest plan does not fit a device with memory of its own, or what it takes of the host.
[[noreturn]] void refuse_device(const MemoryPlan& plan, const RunShape& shape, uint64_t budget) {
  const DevicePlan& d = plan.device;
  if (d.peak() > shape.device_budget) {
    fail(ErrorKind::no_fit,
         "the device budget of {} is too small; the smallest that works is --device-memory {}MiB "
         "(with streamed weights the model needs {}: KV cache {}, resident weights {}, staging, "
         "activations and workspace {}{})",
         format_size(shape.device_budget), ceil_div(static_cast<int64_t>(d.peak()), MiB),
         format_size(d.peak()), format_size(d.kv_cache), format_size(d.weights),
         format_size(d.peak() - d.weights - d.kv_cache - d.draft), draft_text(d.draft));
  }
  fail(ErrorKind::no_fit,
       "the host budget of {} is too small; the smallest budget that works is --memory {}MiB (the "
       "model needs {} of host memory beside the device's)",
       format_size(budget), enough_mib(plan), format_size(plan.needed()));
}

std::optional<MemoryPlan> resident_within(PlanSearch& search, const RunShape& shape,
                                          uint64_t budget) {
  for (const BufferSizes& sizes : buffer_sizes_for(shape.read)) {
    if (search.leaves() || !search.may_be_resident(budget)) break;
    MemoryPlan plan = search.resident(sizes);
    if (search.fits(plan, budget)) return search.with_device_rows(std::move(plan), budget);
  }
  return std::nullopt;
}

}  // namespace

bool can_be_resident(const CausalLM& root, ReadPlan& laid_out, const RunShape& shape,
                     uint64_t budget, uint64_t runtime) {
  PlanSearch search(root, laid_out, shape, runtime);
  return resident_within(search, shape, budget).has_value();
}

std::optional<MemoryPlan> try_place(const CausalLM& root, ReadPlan& laid_out, const RunShape& shape,
                                    uint64_t budget, uint64_t runtime) {
  PlanSearch search(root, laid_out, shape, runtime);
  if (!search.can_stream()) return std::nullopt;
  if (auto plan = resident_within(search, shape, budget)) return plan;
  // Less memory for streaming leaves more to weights, but keeps the disk less busy.
  std::optional<MemoryPlan> best;
  for (const BufferSizes& sizes : buffer_sizes_for(shape.read)) {
    MemoryPlan plan = search.filling(search.with_more_rows(sizes, budget), budget);
    if (!search.fits(plan, budget)) continue;
    if (!best || sweep_cost(plan, shape) < kWorthwhile * sweep_cost(*best, shape))
      best = std::move(plan);
  }
  return best;
}

MemoryPlan place(const CausalLM& root, ReadPlan& laid_out, const RunShape& shape, uint64_t budget,
                 uint64_t runtime) {
  if (auto placed = try_place(root, laid_out, shape, budget, runtime)) return *std::move(placed);
  MemoryPlan plan = PlanSearch(root, laid_out, shape, runtime).smallest();
  if (plan.device.peak() > 0) refuse_device(plan, shape, budget);
  fail(ErrorKind::no_fit,
       "the budget of {} is too small; the smallest budget that works is --memory {}MiB (with "
       "weights streamed from disk the model needs {}: KV cache {}, resident weights, staging, "
       "activations and workspace {}, the process itself {}{})",
       format_size(budget), enough_mib(plan), format_size(plan.needed()),
       format_size(plan.kv_cache),
       format_size(plan.needed() - plan.kv_cache - plan.runtime - plan.draft),
       format_size(plan.runtime), draft_text(plan.draft));
}

MemoryPlan shrink(const MemoryPlan& now, const CausalLM& root, ReadPlan& laid_out,
                  const RunShape& shape, uint64_t budget, uint64_t runtime) {
  PlanSearch search(root, laid_out, shape, runtime);
  // The lists of the load and of the plan are there.
  auto kept = [&](MemoryPlan plan) {
    plan.runtime = std::max(plan.runtime, now.runtime);
    return plan;
  };
  std::optional<MemoryPlan> best;
  for (BufferSizes sizes : buffer_sizes_for(shape.read)) {
    sizes.chunk_rows = now.chunk_rows;
    const MemoryPlan filled = search.filling(sizes, budget);
    Placement placement = filled.placement;
    // Weights that were moved to the disk stay there: to bring them back would be a load.
    for (size_t i = 0; i < now.placement.size(); ++i)
      if (now.placement[i] == Tier::disk || now.placement[i] == Tier::cached)
        placement[i] = now.placement[i];
    MemoryPlan plan = kept(search.predict(sizes, placement, filled.expert_slots));
    if (plan.needed() > budget) plan = kept(search.streaming(sizes));
    bool fits = plan.needed() <= budget;
    if (!best || best->needed() > budget ||
        (fits && sweep_cost(plan, shape) < sweep_cost(*best, shape)))
      best = std::move(plan);
  }
  return *std::move(best);
}

}  // namespace sluice
