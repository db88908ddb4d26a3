#include "src/models/attention.h"

#include <cmath>

namespace sluice {
namespace {

Tensor angles(const Tensor& all, const Share& of) { return all.columns(of.begin, of.count); }

}  // namespace

Attention::Attention(const DecoderSpec& model, const AttentionSpec& spec, int64_t layer, Rank rank)
    : Module(name_in_layer(spec.name, layer)),
      spec_(spec),
      key_source_(name_in_layer(spec.qkv.parts[1].source, layer)),
      value_source_(name_in_layer(spec.qkv.parts[2].source, layer)) {
  if (spec.rope) {
    key_angles_ = model.angle_columns(spec.angles);
    query_angles_ = model.angle_columns(spec.query_angles.value_or(spec.angles));
  }
  std::vector<LinearPart> parts;
  for (size_t i = 0; i < spec.qkv.parts.size(); ++i) {
    const Dimension& dimension = i == 0 ? spec.heads : spec.kv_heads;
    parts.push_back({name_in_layer(spec.qkv.parts[i].source, layer), dimension.size,
                     Shard::by_rows(dimension), spec.qkv.parts[i].view});
  }
  qkv_ = &add_child<Linear>(name_in_layer(spec.qkv.name, layer), parts, model.hidden_size,
                            spec.qkv.bias, rank);
  q_norm_ = add_norm(spec.q_norm, layer);
  k_norm_ = add_norm(spec.k_norm, layer);
  parts = {{name_in_layer(spec.output.parts[0].source, layer), model.hidden_size,
            Shard::by_cols(spec.heads), spec.output.parts[0].view}};
  output_ = &add_child<Linear>(name_in_layer(spec.output.name, layer), parts, spec.heads.size,
                               spec.output.bias, rank);
}

const Norm* Attention::add_norm(const NormSpec& spec, int64_t layer) {
  if (!spec.exists()) return nullptr;
  return &add_child<Norm>(name_in_layer(spec.name, layer), spec_.head_dim, spec.params, spec.bias);
}

void Attention::turn(const Kernels& kernels, const StepRows& step, const Share& of,
                     Tensor heads) const {
  kernels.rope(heads, spec_.head_dim, *spec_.rope, angles(step.cos, of), angles(step.sin, of));
}

void Attention::forward(const Context& context, const StepRows& step, const KvRows& kv,
                        const KvCache& cache, const Activations& act, Tensor x, Tensor y) const {
  const Kernels& kernels = context.kernels;
  Tensor qkv = act.qkv(x.rows).columns(0, qkv_->outputs());
  qkv_->forward(context, x, qkv);
  Tensor q = qkv_->part(qkv, 0), k = qkv_->part(qkv, 1), v = qkv_->part(qkv, 2);
  auto normalize = [&] {
    if (q_norm_ != nullptr) q_norm_->forward(kernels, q, q);
    if (k_norm_ != nullptr) k_norm_->forward(kernels, k, k);
  };
  if (!spec_.norms_after_rope) normalize();
  if (spec_.rope && !spec_.norms_after_rope && query_angles_.begin == key_angles_.begin) {
    kernels.rope_store_kv(q, k, v, *spec_.rope, angles(step.cos, key_angles_),
                          angles(step.sin, key_angles_), kv.slots, cache);
  } else {
    if (spec_.rope) turn(kernels, step, query_angles_, q);
    if (spec_.rope) turn(kernels, step, key_angles_, k);
    if (spec_.norms_after_rope) normalize();
    kernels.store_kv(k, v, kv.slots, cache);
  }
  AttentionParams params;
  params.scale =
      spec_.scale != 0 ? spec_.scale : 1.0f / std::sqrt(static_cast<float>(spec_.head_dim));
  params.window = spec_.window;
  Tensor attention = act.attention(x.rows).columns(0, q.cols);
  kernels.paged_attention(q, cache, kv, params, attention);
  output_->forward(context, attention, y);
}

KvScaleNames Attention::kv_scale_names() const {
  return {{path() + ".k_scale", path() + ".attn.k_scale", key_source_ + ".k_scale",
           key_source_ + ".output_scale", path() + ".kv_scale"},
          {path() + ".v_scale", path() + ".attn.v_scale", value_source_ + ".v_scale",
           value_source_ + ".output_scale", path() + ".kv_scale"}};
}

}  // namespace sluice
