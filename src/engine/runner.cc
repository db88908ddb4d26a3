#include "src/engine/runner.h"

#include <algorithm>

#include "src/base/error.h"

namespace sluice {
namespace {

KvStorage make_storage(const CausalLM& model, Ledger& ledger, const MemoryPlan& plan,
                       const RunShape& shape) {
  KvCache cache = kv_cache_shape(model, shape);
  cache.blocks = plan.kv_blocks;
  std::vector<int64_t> areas;
  for (const LayerGroups::Layer& l : model.layer_groups().layers) areas.push_back(l.area);
  KvStorage::Swap swap{plan.swap_blocks, plan.disk_blocks, shape.swap.directory};
  bool scales = is_float8(cache.dtype);
  return {ledger, cache, areas, swap, scales ? model.kv_scales() : std::span<const KvScales>{}};
}

BlockOptions block_options(const CausalLM& model, const MemoryPlan& plan, const RunShape& shape,
                           const BlockCosts& costs) {
  return {shape.block_size,
          model.layer_groups().windows,
          {plan.kv_blocks, plan.swap_blocks, plan.disk_blocks},
          costs};
}

}  // namespace

Runner::Runner(const CausalLM& model, Isa isa, ThreadPool& pool, Ledger& ledger,
               const MemoryPlan& plan, const RunShape& shape, const BlockCosts& costs)
    : model_(model),
      ledger_(ledger),
      logits_rows_(std::min(shape.logits_rows, plan.chunk_rows)),
      workspace_memory_(ledger, Use::workspace, "kernels",
                        cpu_workspace_bytes(model.workspace_needs(plan.chunk_rows), pool.size()),
                        Buffer::Touch::now),
      activation_memory_(ledger, Use::activations, "activations",
                         Activations::bytes(model.config(), plan.chunk_rows, model.rank()),
                         Buffer::Touch::now),
      logits_memory_(ledger, Use::activations, "logits",
                     static_cast<uint64_t>(logits_rows_ * model.logits_cols()) * sizeof(float),
                     Buffer::Touch::now),
      kernels_(make_cpu_kernels(isa, shape.compute, pool, workspace_memory_.bytes())),
      kv_(make_storage(model, ledger, plan, shape)),
      blocks_(block_options(model, plan, shape, costs)),
      activations_(std::make_unique<Activations>(model.config(), plan.chunk_rows, model.rank(),
                                                 activation_memory_.bytes())),
      kv_rows_(blocks_.groups()) {}

Sequence Runner::new_sequence(int64_t prompt_tokens) {
  bool depends = model_.config().rope.depends_on_length();
  return Sequence(blocks_, depends ? static_cast<uint64_t>(prompt_tokens) : 0);
}

Tensor Runner::step(std::span<const StepPart> parts) {
  ids_.clear();
  for (KvRows& kv : kv_rows_) {
    kv.chunks.clear();
    kv.slots.clear();
  }
  copies_.clear();
  for (const StepPart& part : parts) add_part(part);
  int64_t rows = std::ssize(ids_);
  check(rows > 0, "a step without rows");
  kv_.copy(copies_);
  model_.forward(*kernels_,
                 {ids_, kv_rows_, activations_->cos(rows), activations_->sin(rows), kv_.layers()},
                 *activations_);
  for (const StepPart& part : parts) part.sequence->grow(std::ssize(part.ids));
  return activations_->normed(rows).columns(0, model_.config().hidden_size);
}

void Runner::add_part(const StepPart& part) {
  Sequence& sequence = *part.sequence;
  int64_t first_row = std::ssize(ids_);
  int64_t rows = std::ssize(part.ids);
  int64_t first = sequence.length();
  check(first_row + rows <= max_rows(), "a step has too many rows");
  if (!sequence.table().reserve(first, first + rows, copies_)) {
    fail(ErrorKind::no_fit,
         "the KV cache is full after {} tokens; raise --memory or lower --max-tokens", first);
  }
  ids_.insert(ids_.end(), part.ids.begin(), part.ids.end());
  for (size_t g = 0; g < kv_rows_.size(); ++g) {
    KvRows& kv = kv_rows_[g];
    for (int64_t i = 0; i < rows; ++i) kv.slots.push_back(sequence.table().slot(g, first + i));
    kv.chunks.push_back({first_row, rows, first, sequence.table().blocks(g)});
  }
  fill_rope(part, first_row);
}

void Runner::fill_rope(const StepPart& part, int64_t first_row) {
  const RopeConfig& rope = model_.config().rope;
  int64_t rows = std::ssize(part.ids);
  int64_t position = part.sequence->length();
  Tensor cos = activations_->cos(max_rows()).rows_from(first_row, rows);
  Tensor sin = activations_->sin(max_rows()).rows_from(first_row, rows);
  if (part.rope_length > 0) return rope_table(rope, {position, part.rope_length}, cos, sin);
  for (int64_t i = 0; i < rows; ++i, ++position)
    rope_table(rope, {position, position + 1}, cos.rows_from(i, 1), sin.rows_from(i, 1));
}

Tensor Runner::prefill(Sequence& sequence, std::span<const int32_t> ids, std::stop_token stop) {
  int64_t length = std::ssize(ids);
  Tensor last;
  for (int64_t at = 0; at < length; at += max_rows()) {
    if (stop.stop_requested()) fail(ErrorKind::runtime, "interrupted after {} prompt tokens", at);
    int64_t rows = std::min(max_rows(), length - at);
    Tensor hidden =
        step(sequence, ids.subspan(static_cast<size_t>(at), static_cast<size_t>(rows)), length);
    last = hidden.rows_from(rows - 1, 1);
  }
  return last;
}

// What rounds differently gives other keys and values.
PromptCache Runner::prompt_cache(std::filesystem::path path, const std::string& identity) {
  return {std::move(path), fmt::format("{} {}", identity, kernels_->name()), blocks_, kv_, ledger_};
}

int64_t Runner::restore(PromptCache& cache, std::span<const int32_t> prompt) {
  Sequence sequence = new_sequence(std::ssize(prompt));
  return cache.restore(prompt.first(prompt.size() - 1), sequence);
}

void Runner::save(PromptCache& cache, std::span<const int32_t> prompt) {
  Sequence sequence = new_sequence(std::ssize(prompt));
  auto known = prompt.first(prompt.size() - 1);
  std::vector<BlockCopy> copies;
  sequence.adopt(sequence.match(known), copies);
  kv_.copy(copies);
  cache.save(known, sequence);
}

Tensor Runner::logits(Tensor hidden) {
  check(hidden.rows <= logits_rows_, "more logits rows than planned");
  Tensor all{logits_memory_.data(), DType::f32, hidden.rows, model_.logits_cols(),
             model_.logits_cols()};
  model_.logits(*kernels_, hidden, all);
  return all.columns(0, model_.config().vocab_size);
}

}  // namespace sluice
