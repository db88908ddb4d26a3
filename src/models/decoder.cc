#include "src/models/decoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"
#include "src/device/range.h"
#include "src/nn/weight_stream.h"

namespace sluice {
namespace {

Shard head_rows(const DecoderConfig& c) { return Shard::by_rows(c.head_dim); }

std::vector<LinearPart> qkv_parts(const std::string& attention, const DecoderConfig& c) {
  return {{attention + ".q_proj", c.heads * c.head_dim, head_rows(c)},
          {attention + ".k_proj", c.kv_heads * c.head_dim, head_rows(c)},
          {attention + ".v_proj", c.kv_heads * c.head_dim, head_rows(c)}};
}

std::vector<LinearPart> gate_up_parts(const std::string& mlp, const DecoderConfig& c) {
  return {{mlp + ".gate_proj", c.intermediate_size, Shard::by_rows()},
          {mlp + ".up_proj", c.intermediate_size, Shard::by_rows()}};
}

int64_t padded(int64_t outputs) { return ceil_div(outputs, kPanelRows) * kPanelRows; }

// Widths of the activation matrices, in the order of Activations' members.
std::array<int64_t, 5> widths(const DecoderConfig& c, Rank rank) {
  int64_t heads = head_rows(c).cut(c.heads * c.head_dim, 1, rank).rows;
  int64_t kv = head_rows(c).cut(c.kv_heads * c.head_dim, 1, rank).rows;
  int64_t inner = Shard::by_rows().cut(c.intermediate_size, 1, rank).rows;
  int64_t hidden = padded(c.hidden_size);  // a linear layer's output is whole panels wide
  return {hidden, hidden, padded(heads) + 2 * padded(kv), heads, 2 * padded(inner)};
}

uint64_t matrix_bytes(int64_t rows, int64_t cols) {
  return round_up(static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols) * sizeof(float), 64);
}

void check_ranks(const DecoderConfig& c, Rank rank) {
  bool kv_fits = c.kv_heads % rank.size == 0 || rank.size % c.kv_heads == 0;
  if (c.heads % rank.size != 0 || !kv_fits) {
    fail(ErrorKind::usage,
         "--tensor-parallel-size {} does not divide the model's {} heads and {} KV heads evenly",
         rank.size, c.heads, c.kv_heads);
  }
}

}  // namespace

uint64_t Activations::bytes(const DecoderConfig& config, int64_t max_rows, Rank rank) {
  uint64_t total = 0;
  for (int64_t width : widths(config, rank)) total += matrix_bytes(max_rows, width);
  return total;
}

Activations::Activations(const DecoderConfig& config, int64_t max_rows, Rank rank,
                         std::span<std::byte> memory) {
  check(memory.size() >= bytes(config, max_rows, rank), "activation memory is too small");
  std::array<Tensor*, 5> matrices{&residual_, &normed_, &qkv_, &attention_, &gate_up_};
  std::array<int64_t, 5> cols = widths(config, rank);
  std::byte* at = memory.data();
  for (size_t i = 0; i < matrices.size(); ++i) {
    *matrices[i] = {at, DType::f32, max_rows, cols[i], cols[i]};
    at += matrix_bytes(max_rows, cols[i]);
  }
  // The residual stream and the norms are exactly as wide as the model.
  residual_.cols = config.hidden_size;
}

DecoderLayer::DecoderLayer(std::string path, const DecoderConfig& c, int64_t window, Rank rank)
    : Module(std::move(path)), config_(c), window_(window) {
  std::string attention = this->path() + ".self_attn";
  std::string mlp = this->path() + ".mlp";
  input_norm_ =
      &add_child<RmsNorm>(this->path() + ".input_layernorm", c.hidden_size, c.rms_norm_eps);
  qkv_ = &add_child<Linear>(attention + ".qkv_proj", qkv_parts(attention, c), c.hidden_size,
                            c.qkv_bias, rank);
  output_ = &add_child<Linear>(
      attention + ".o_proj",
      std::vector<LinearPart>{{attention + ".o_proj", c.hidden_size, Shard::by_cols(c.head_dim)}},
      c.heads * c.head_dim, c.output_bias, rank);
  post_norm_ = &add_child<RmsNorm>(this->path() + ".post_attention_layernorm", c.hidden_size,
                                   c.rms_norm_eps);
  gate_up_ = &add_child<Linear>(mlp + ".gate_up_proj", gate_up_parts(mlp, c), c.hidden_size,
                                c.mlp_bias, rank);
  down_ = &add_child<Linear>(
      mlp + ".down_proj",
      std::vector<LinearPart>{{mlp + ".down_proj", c.hidden_size, Shard::by_cols()}},
      c.intermediate_size, c.mlp_bias, rank);
}

void DecoderLayer::forward(const Kernels& kernels, const Batch& batch, const KvRows& kv,
                           const KvCache& cache, const Activations& act, bool first) const {
  Range range(path());
  int64_t rows = std::ssize(batch.rows.ids);
  Tensor residual = act.residual(rows);
  Tensor wide =
      act.normed(rows);  // whole panels; its first hidden_size columns are the norm's output
  Tensor normed = wide.columns(0, config_.hidden_size);

  if (first) {
    input_norm_->forward(kernels, residual, normed);
  } else {
    input_norm_->forward_add(kernels, residual, normed, normed);
  }
  Tensor qkv = act.qkv(rows);
  qkv_->forward(kernels, normed, qkv);
  Tensor q = qkv_->part(qkv, 0);
  Tensor k = qkv_->part(qkv, 1);
  kernels.rope(q, config_.head_dim, batch.rows.cos, batch.rows.sin);
  kernels.rope(k, config_.head_dim, batch.rows.cos, batch.rows.sin);
  kernels.store_kv(k, qkv_->part(qkv, 2), kv.slots, cache);
  AttentionParams params;
  params.scale = 1.0f / std::sqrt(static_cast<float>(config_.head_dim));
  params.window = window_;
  Tensor attention = act.attention(rows);
  kernels.paged_attention(q, cache, kv, params, attention);
  output_->forward(kernels, attention, wide);

  post_norm_->forward_add(kernels, residual, normed, normed);
  Tensor gate_up = act.gate_up(rows);
  gate_up_->forward(kernels, normed, gate_up);
  Tensor gate = gate_up_->part(gate_up, 0);
  kernels.gated_activation(config_.activation, gate, gate_up_->part(gate_up, 1), gate);
  down_->forward(kernels, gate, wide);
}

KvScaleNames DecoderLayer::kv_scale_names() const {
  std::string attention = path() + ".self_attn";
  return {{attention + ".k_scale", attention + ".attn.k_scale", attention + ".k_proj.k_scale",
           attention + ".k_proj.output_scale", attention + ".kv_scale"},
          {attention + ".v_scale", attention + ".attn.v_scale", attention + ".v_proj.v_scale",
           attention + ".v_proj.output_scale", attention + ".kv_scale"}};
}

CausalLM::CausalLM(DecoderConfig config, Rank rank)
    : Module("model"),
      config_(std::move(config)),
      rank_(rank),
      groups_(group_layers(config_.windows)) {
  check_ranks(config_, rank);
  embedding_ =
      &add_child<Embedding>("model.embed_tokens", config_.embedding_tensor, config_.vocab_size,
                            config_.hidden_size, config_.tie_word_embeddings);
  units_.push_back(embedding_);
  for (int64_t i = 0; i < config_.layers; ++i) {
    layers_.push_back(&add_child<DecoderLayer>(fmt::format("model.layers.{}", i), config_,
                                               config_.windows[static_cast<size_t>(i)], rank));
    units_.push_back(layers_.back());
  }
  norm_ = &add_child<RmsNorm>("model.norm", config_.hidden_size, config_.rms_norm_eps);
  units_.push_back(norm_);
  head_ = &embedding_->table();
  if (!config_.tie_word_embeddings) {
    Linear& head =
        add_child<Linear>("lm_head", std::vector<LinearPart>{{"lm_head", config_.vocab_size}},
                          config_.hidden_size, false, Rank{}, ParamRole::head);
    head_ = &head.weight();
    units_.push_back(&head);
  }
}

std::vector<KvScaleNames> CausalLM::kv_scale_names() const {
  std::vector<KvScaleNames> names;
  names.reserve(layers_.size());
  for (const DecoderLayer* layer : layers_) names.push_back(layer->kv_scale_names());
  return names;
}

void CausalLM::use_kv_scales(std::vector<KvScales> scales) {
  check(scales.empty() || scales.size() == layers_.size(), "KV scales of every layer, or none");
  kv_scales_ = std::move(scales);
}

void CausalLM::forward(const Kernels& kernels, const Batch& batch, const Activations& act,
                       size_t unit) const {
  int64_t rows = std::ssize(batch.rows.ids);
  Tensor residual = act.residual(rows);
  if (unit == 0) return embedding_->forward(kernels, batch.rows, residual);
  if (const size_t i = unit - 1; i < layers_.size()) {
    const KvRows& kv = batch.rows.kv[groups_.layers[i].group];
    return layers_[i]->forward(kernels, batch, kv, batch.caches[i], act, i == 0);
  }
  Tensor normed = act.normed(rows).columns(0, config_.hidden_size);
  norm_->forward_add(kernels, residual, normed, normed);
}

void CausalLM::logits(const Kernels& kernels, Tensor hidden, Tensor logits) const {
  multiply(kernels, hidden, *head_, nullptr, logits);
}

int64_t CausalLM::logits_cols() const { return head_->rows; }

WorkspaceNeeds CausalLM::workspace_needs(int64_t max_rows) const {
  int64_t heads = config_.heads / rank_.size;
  int64_t widest_input =
      std::max({config_.hidden_size, heads * config_.head_dim, config_.intermediate_size});
  WorkspaceNeeds needs{max_rows, widest_input, config_.head_dim};
  needs.heads = heads;
  needs.rope_cols = config_.rope.dim / 2;
  needs.groups = std::ssize(groups_.windows);
  return needs;
}

}  // namespace sluice
