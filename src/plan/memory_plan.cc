#include "src/plan/memory_plan.h"

#include <algorithm>
#include <array>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/memory/buffer.h"

namespace sluice {
namespace {

constexpr std::array<Effort, 4> kEfforts{{{{2 * MiB, 32 * MiB}, 512},
                                          {{2 * MiB, 16 * MiB}, 128},
                                          {{MiB, 4 * MiB}, 32},
                                          {{256 * KiB, MiB}, 8}}};

// What the process grows by beside its leases: thread stacks, io_uring's rings, the heap of the
// plan, code pages that the run touches for the first time.
constexpr uint64_t kRuntimeGrowth = MiB;
// Kept free in a budget: what of the kernel's is not proportional, and pages that belong to nobody
// yet.
constexpr uint64_t kSlack = 3 * MiB;

}  // namespace

uint64_t kv_bytes_per_block(const DecoderConfig& config, Rank rank, int64_t block_size,
                            DType dtype) {
  int64_t kv = Shard::by_rows(config.head_dim).cut(config.kv_heads * config.head_dim, 1, rank).rows;
  return static_cast<uint64_t>(2 * config.layers * kv * block_size * dtype_bytes(dtype));
}

MemoryPlan predict_memory(Model& model, const io::CheckpointIndex& index,
                          const QuantizeRequest& quantize, const RunShape& shape,
                          const Effort& effort, uint64_t runtime) {
  const CausalLM& root = *model.root;
  const DecoderConfig& config = root.config();
  ReadPlan read = compile(model, index, quantize, effort.staging);

  MemoryPlan plan;
  plan.effort = effort;
  plan.chunk_rows = std::clamp<int64_t>(shape.longest_prompt, 1, effort.chunk_rows);
  plan.runtime = runtime + kRuntimeGrowth;
  for (const UnitPlan& u : read.units) plan.weights += Buffer::charged_bytes(u.storage_bytes);
  plan.staging = read.ring_bytes;
  plan.kv_blocks = ceil_div(shape.max_tokens, shape.block_size);
  plan.kv_cache = Buffer::charged_bytes(
      static_cast<uint64_t>(plan.kv_blocks) *
      kv_bytes_per_block(config, root.rank(), shape.block_size, shape.kv_dtype));
  uint64_t logits = static_cast<uint64_t>(std::min(shape.logits_rows, plan.chunk_rows)) *
                    static_cast<uint64_t>(root.logits_cols()) * sizeof(float);
  plan.activations =
      Buffer::charged_bytes(Activations::bytes(config, plan.chunk_rows, root.rank())) +
      Buffer::charged_bytes(logits) + Buffer::charged_bytes(shape.output_bytes);
  plan.workspace = Buffer::charged_bytes(
      cpu_workspace_bytes(root.workspace_needs(plan.chunk_rows, shape.max_tokens), shape.threads));
  // One 8-byte entry for each 4 KiB page; huge pages keep a table in reserve.
  plan.kernel = plan.peak() / 512 + kSlack;
  return plan;
}

MemoryPlan smallest_plan(Model& model, const io::CheckpointIndex& index,
                         const QuantizeRequest& quantize, const RunShape& shape, uint64_t runtime) {
  return predict_memory(model, index, quantize, shape, kEfforts.back(), runtime);
}

MemoryPlan place(Model& model, const io::CheckpointIndex& index, const QuantizeRequest& quantize,
                 const RunShape& shape, uint64_t budget, uint64_t runtime) {
  MemoryPlan plan;
  for (const Effort& effort : kEfforts) {
    plan = predict_memory(model, index, quantize, shape, effort, runtime);
    if (plan.needed() <= budget) return plan;
  }
  // One MiB more than today's figure: the process itself is not the same to the page in every run.
  fail(ErrorKind::no_fit,
       "the model needs {} of memory (weights {}, KV cache {}, staging, activations and workspace "
       "{}, the process itself {}), "
       "but the budget is {}; the smallest budget that works is --memory {}MiB{}",
       format_size(plan.needed()), format_size(plan.weights), format_size(plan.kv_cache),
       format_size(plan.needed() - plan.weights - plan.kv_cache - plan.runtime),
       format_size(plan.runtime), format_size(budget),
       ceil_div(static_cast<int64_t>(plan.needed() + MiB), MiB),
       quantize.scheme.group == ScaleGroup::none ? ", or less with --quantization fp8" : "");
}

}  // namespace sluice
