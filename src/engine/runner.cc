#include "src/engine/runner.h"

#include <algorithm>

#include "src/base/error.h"

namespace sluice {
namespace {

KvCache cache_shape(const CausalLM& model, const MemoryPlan& plan, const RunShape& shape) {
  const DecoderConfig& c = model.config();
  int64_t kv_rows = Shard::by_rows(c.head_dim).cut(c.kv_heads * c.head_dim, 1, model.rank()).rows;
  KvCache cache;
  cache.dtype = shape.kv_dtype;
  cache.blocks = plan.kv_blocks;
  cache.block_size = shape.block_size;
  cache.kv_heads = kv_rows / c.head_dim;
  cache.head_dim = c.head_dim;
  return cache;
}

}  // namespace

Runner::Runner(const CausalLM& model, Isa isa, ThreadPool& pool, Ledger& ledger,
               const MemoryPlan& plan, const RunShape& shape)
    : model_(model),
      block_size_(shape.block_size),
      logits_rows_(std::min(shape.logits_rows, plan.chunk_rows)),
      workspace_memory_(ledger, Use::workspace, "kernels",
                        cpu_workspace_bytes(
                            model.workspace_needs(plan.chunk_rows, shape.max_tokens), pool.size()),
                        Buffer::Touch::now),
      activation_memory_(ledger, Use::activations, "activations",
                         Activations::bytes(model.config(), plan.chunk_rows, model.rank()),
                         Buffer::Touch::now),
      logits_memory_(ledger, Use::activations, "logits",
                     static_cast<uint64_t>(logits_rows_ * model.logits_cols()) * sizeof(float),
                     Buffer::Touch::now),
      kernels_(make_cpu_kernels(isa, shape.compute, pool, workspace_memory_.bytes())),
      kv_(ledger, cache_shape(model, plan, shape), model.config().layers),
      blocks_(plan.kv_blocks),
      activations_(std::make_unique<Activations>(model.config(), plan.chunk_rows, model.rank(),
                                                 activation_memory_.bytes())) {}

Tensor Runner::step(Sequence& sequence, std::span<const int32_t> ids, int64_t rope_length) {
  int64_t rows = std::ssize(ids);
  check(rows > 0 && rows <= max_rows(), "a step has too many rows");
  rope_table(model_.config().rope, {sequence.length_, rope_length}, activations_->cos(rows),
             activations_->sin(rows));
  return forward(sequence, ids);
}

Tensor Runner::decode(Sequence& sequence, std::span<const int32_t> ids) {
  int64_t rows = std::ssize(ids);
  check(rows > 0 && rows <= max_rows(), "a step has too many rows");
  for (int64_t i = 0; i < rows; ++i) {
    int64_t position = sequence.length_ + i;
    rope_table(model_.config().rope, {position, position + 1},
               activations_->cos(rows).rows_from(i, 1), activations_->sin(rows).rows_from(i, 1));
  }
  return forward(sequence, ids);
}

Tensor Runner::forward(Sequence& sequence, std::span<const int32_t> ids) {
  int64_t rows = std::ssize(ids);
  int64_t first = sequence.length_;
  if (!sequence.table_.reserve(first + rows)) {
    fail(ErrorKind::no_fit,
         "the KV cache is full after {} tokens; raise --memory or lower --max-tokens", first);
  }
  slots_.clear();
  for (int64_t i = 0; i < rows; ++i) slots_.push_back(sequence.table_.slot(first + i));
  SequenceChunk chunk{0, rows, first, sequence.table_.blocks()};
  Tensor cos = activations_->cos(rows);
  Tensor sin = activations_->sin(rows);
  model_.forward(*kernels_, {ids, {&chunk, 1}, slots_, cos, sin, kv_.layers()}, *activations_);
  sequence.length_ += rows;
  return activations_->normed(rows).columns(0, model_.config().hidden_size);
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

Tensor Runner::logits(Tensor hidden) {
  check(hidden.rows <= logits_rows_, "more logits rows than planned");
  Tensor all{logits_memory_.data(), DType::f32, hidden.rows, model_.logits_cols(),
             model_.logits_cols()};
  model_.logits(*kernels_, hidden, all);
  return all.columns(0, model_.config().vocab_size);
}

}  // namespace sluice
