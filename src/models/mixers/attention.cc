// Softmax attention: q, k and v in one product, rope, the KV cache, the output.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/models/mixers/mixer.h"

namespace sluice {
namespace {

Tensor columns_of(const Tensor& angles, const Share& share) {
  return angles.columns(share.begin, share.count);
}

// The weights of all heads, those of the rank's first.
std::vector<PieceSpec> weights_of_heads(const std::string& norm, const AttentionSpec& spec,
                                        const Dimension& heads, Rank rank) {
  const int64_t count = heads.units(), first = heads.share(rank).begin / spec.head_dim;
  std::vector<PieceSpec> weights;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t h = (first + i) % count;
    PieceSpec& weight = weights.emplace_back(PieceSpec{norm + ".weight", spec.head_dim});
    if (spec.head_norms == HeadNorms::each) weight.view.index = h;
    if (spec.head_norms == HeadNorms::each_tensor)
      weight.source = fmt::format("{}.norms.{}.weight", norm, h);
  }
  return weights;
}

class Attention final : public Mixer {
 public:
  Attention(const AttentionSpec& spec, const MixerPlace& place);
  void forward(const Context& context, const MixerStep& step, const Activations& act,
               const RowsIn& from, const RowsOut& to) const override;
  const Linear* output() const override { return output_; }
  KvScaleNames kv_scale_names() const override;
  std::vector<KvSpec> kv_specs() const override;

 private:
  const Norm* add_norm(const NormSpec& spec, const Dimension& heads, const MixerPlace& place);
  const Norm& add_row_norm(const NormSpec& spec, const Dimension& heads, const MixerPlace& place);
  void normalize(const Context& context, const Activations& act, const Norm* norm, Tensor x) const;
  void rotate(const Context& context, const StepRows& step, const Share& angles,
              Tensor heads) const;
  // Norm and rope of queries whose keys another layer has.
  void prepare_queries(const Context& context, const StepRows& step, const Activations& act,
                       Tensor q) const;
  // Returns what the cache gets as values.
  Tensor values(const Context& context, const Activations& act, Tensor qkv) const;
  // Norm, clip and rope of queries and keys, which the cache gets with the values; then the sums
  // that rows attend to.
  void store_and_attend(const Context& context, const StepRows& step, const LayerKv& own,
                        const Activations& act, Tensor qkv, Tensor out) const;
  AttentionParams params(const StepRows& step) const;
  void add_sinks(const MixerPlace& place);

  const AttentionSpec& spec_;
  int64_t kv_heads_;                       // of this rank
  Share key_angles_, query_angles_;        // the columns of a step's cos and sin
  std::string key_source_, value_source_;  // paths of the projections
  Linear* qkv_;
  const Norm* q_norm_;  // or none
  const Norm* k_norm_;
  const Norm* v_norm_;
  const Norm* output_norm_ = nullptr;
  const Param* sinks_ = nullptr;  // or none
  Linear* output_;
};

Attention::Attention(const AttentionSpec& spec, const MixerPlace& place)
    : Mixer(place.name(spec.name)),
      spec_(spec),
      kv_heads_(spec.kv_heads.share(place.rank).count / spec.head_dim),
      key_source_(
          place.name(spec.qkv.parts[std::min(size_t{1}, spec.qkv.parts.size() - 1)].source)),
      value_source_(
          place.name(spec.qkv.parts[std::min(size_t{2}, spec.qkv.parts.size() - 1)].source)) {
  const DecoderSpec& model = place.model;
  const int64_t stored = spec.shared_with ? 1 : spec.keys_are_values ? 2 : 3;
  check(std::ssize(spec.qkv.parts) == stored + (spec.output_gate ? 1 : 0) &&
            (!spec.keys_are_values || spec.v_norm.exists()),
        "an attention's parts");
  if (spec.rope) {
    key_angles_ = model.angle_columns(spec.angles);
    query_angles_ = model.angle_columns(spec.query_angles.value_or(spec.angles));
  }
  const Dimension outputs = resized(spec.heads, spec.of_value());
  std::vector<Dimension> parts(spec.qkv.parts.size(), spec.kv_heads);
  parts.front() = spec.heads;
  if (spec.value_dim > 0) parts[2] = resized(spec.kv_heads, spec.value_dim);
  if (spec.output_gate) parts.back() = spec.gates_heads ? resized(spec.heads, 1) : outputs;
  qkv_ = &add_child<Linear>(place.name(spec.qkv.name), parts_by_rows(spec.qkv, parts, place),
                            model.hidden_size, spec.qkv.bias, place.rank);
  q_norm_ = add_norm(spec.q_norm, spec.heads, place);
  k_norm_ = add_norm(spec.k_norm, spec.kv_heads, place);
  v_norm_ = add_norm(spec.v_norm, spec.kv_heads, place);
  if (spec.output_norm.exists()) output_norm_ = &add_row_norm(spec.output_norm, outputs, place);
  if (!spec.sinks.empty()) add_sinks(place);
  output_ = &add_child<Linear>(place.name(spec.output.name),
                               part_by_cols(spec.output, outputs, model.hidden_size, place),
                               outputs.size, spec.output.bias, place.rank);
}

void Attention::add_sinks(const MixerPlace& place) {
  const std::string name = place.name(spec_.sinks);
  const Dimension one_a_head = resized(spec_.heads, 1);
  sinks_ = &add_param(make_vector(name, ParamRole::bias,
                                  {{name, one_a_head.size, 0, Shard::by_rows(one_a_head)}},
                                  place.rank, 1));
}

const Norm* Attention::add_norm(const NormSpec& spec, const Dimension& heads,
                                const MixerPlace& place) {
  if (!spec.exists()) return nullptr;
  const std::string name = place.name(spec.name);
  const Rank rank = place.rank;
  const NormTensors tensors{spec.weight, spec.bias};
  if (!spec.weight || spec_.head_norms == HeadNorms::one)
    return &add_child<Norm>(name, spec_.head_dim, spec.params, tensors);
  if (spec_.head_norms != HeadNorms::row) {
    return &add_child<Norm>(name, spec_.head_dim, weights_of_heads(name, spec_, heads, rank),
                            spec.params, rank);
  }
  return &add_row_norm(spec, heads, place);
}

const Norm& Attention::add_row_norm(const NormSpec& spec, const Dimension& heads,
                                    const MixerPlace& place) {
  return add_child<Norm>(place.name(spec.name), heads.size, spec.params,
                         NormTensors{spec.weight, spec.bias}, heads, place.rank);
}

void Attention::normalize(const Context& context, const Activations& act, const Norm* norm,
                          Tensor x) const {
  if (norm == nullptr) return;
  if (spec_.head_norms != HeadNorms::row) return norm->forward(context.kernels, x, x);
  // The room that attention's output takes later.
  norm->forward_part(context, x, act.attention(x.rows), x);
}

void Attention::rotate(const Context& context, const StepRows& step, const Share& angles,
                       Tensor heads) const {
  if (!spec_.rope) return;
  context.kernels.rope(heads, spec_.head_dim, *spec_.rope, columns_of(step.cos, angles),
                       columns_of(step.sin, angles));
}

void Attention::prepare_queries(const Context& context, const StepRows& step,
                                const Activations& act, Tensor q) const {
  if (!spec_.norms_after_rope) normalize(context, act, q_norm_, q);
  rotate(context, step, query_angles_, q);
  if (spec_.norms_after_rope) normalize(context, act, q_norm_, q);
}

Tensor Attention::values(const Context& context, const Activations& act, Tensor qkv) const {
  if (spec_.keys_are_values) {  // behind q and k there is room
    const Tensor k = qkv_->part(qkv, 1), v = act.qkv(k.rows).columns(qkv_->outputs(), k.cols);
    v_norm_->forward(context.kernels, k, v);
    return v;
  }
  const Tensor v = qkv_->part(qkv, 2);
  if (v_norm_ != nullptr) v_norm_->forward(context.kernels, v, v);
  return v;
}

void Attention::store_and_attend(const Context& context, const StepRows& step, const LayerKv& own,
                                 const Activations& act, Tensor qkv, Tensor out) const {
  const KvRows& kv = step.kv[own.group];
  const Tensor q = qkv_->part(qkv, 0), k = qkv_->part(qkv, 1), v = values(context, act, qkv);
  const auto normalize_both = [&] {
    normalize(context, act, q_norm_, q);
    normalize(context, act, k_norm_, k);
  };
  if (!spec_.norms_after_rope) normalize_both();
  if (spec_.clip > 0) context.kernels.clamp(qkv, spec_.clip);
  if (spec_.rope && !spec_.norms_after_rope && query_angles_.begin == key_angles_.begin) {
    return context.kernels.rope_store_attend(
        q, k, v, *spec_.rope, columns_of(step.cos, key_angles_), columns_of(step.sin, key_angles_),
        own.cache, kv, params(step), out);
  }
  rotate(context, step, query_angles_, q);
  rotate(context, step, key_angles_, k);
  if (spec_.norms_after_rope) normalize_both();
  context.kernels.store_kv(k, v, kv.slots, own.cache);
  context.kernels.paged_attention(q, own.cache, kv, params(step), out);
}

AttentionParams Attention::params(const StepRows& step) const {
  AttentionParams params;
  params.scale =
      spec_.scale != 0 ? spec_.scale : 1.0f / std::sqrt(static_cast<float>(spec_.head_dim));
  params.window = spec_.window;
  params.chunk = spec_.chunk;
  params.soft_cap = spec_.soft_cap;
  if (spec_.alibi != 0) params.alibi_slopes = step.alibi_slopes;
  if (sinks_ != nullptr)
    params.sinks = {float_data(sinks_), static_cast<size_t>(sinks_->value.cols)};
  return params;
}

void Attention::forward(const Context& context, const MixerStep& step, const Activations& act,
                        const RowsIn& from, const RowsOut& to) const {
  const LayerKv& own = step.caches.front();
  const int64_t rows = from.rows.rows;
  const Tensor qkv = act.qkv(rows).columns(0, qkv_->outputs());
  qkv_->forward(context, from, qkv);
  const Tensor q = qkv_->part(qkv, 0);
  const int64_t columns = q.cols / spec_.head_dim * spec_.of_value();
  const Tensor attention = act.attention(rows).columns(0, columns);
  if (spec_.shared_with) {
    prepare_queries(context, step.rows, act, q);
    context.kernels.paged_attention(q, own.cache, step.rows.kv[own.group], params(step.rows),
                                    attention);
  } else {
    store_and_attend(context, step.rows, own, act, qkv, attention);
  }
  if (spec_.output_gate) {
    const Tensor gate = qkv_->part(qkv, spec_.qkv.parts.size() - 1);
    const Tensor by = spec_.gates_heads ? Tensor{} : attention;
    context.kernels.activate({*spec_.output_gate}, gate, by, spec_.gates_heads ? gate : attention);
    if (spec_.gates_heads) context.kernels.scale_heads(attention, gate);
  }
  if (output_norm_ != nullptr) output_norm_->forward_part(context, attention, qkv, attention);
  output_->forward(context, attention, to);
}

std::vector<KvSpec> Attention::kv_specs() const {
  return {{.heads = kv_heads_,
           .key_dim = spec_.head_dim,
           .value_dim = spec_.of_value(),
           .window = spec_.window,
           .chunk = spec_.chunk,
           .shared_with = spec_.shared_with}};
}

KvScaleNames Attention::kv_scale_names() const {
  return {{path() + ".k_scale", path() + ".attn.k_scale", key_source_ + ".k_scale",
           key_source_ + ".output_scale", path() + ".kv_scale"},
          {path() + ".v_scale", path() + ".attn.v_scale", value_source_ + ".v_scale",
           value_source_ + ".output_scale", path() + ".kv_scale"}};
}

}  // namespace

// Room for k and v is there in any case: values that are keys lie behind both.
MixerWidths AttentionSpec::widths(Rank rank) const {
  const Dimension outputs = resized(heads, of_value());
  const int64_t q = padded_columns(heads.share(rank).count), own = outputs.share(rank).count;
  const int64_t k = padded_columns(kv_heads.share(rank).count);
  const int64_t v = padded_columns(resized(kv_heads, of_value()).share(rank).count);
  return {q + k + v + (output_gate ? padded_columns(own) : 0), own};
}

void AttentionSpec::divide(Rank rank) {
  divide_heads(heads, kv_heads, rank, head_norms == HeadNorms::row);
}

void AttentionSpec::add_workspace(Rank rank, WorkspaceNeeds& needs) const {
  const int64_t own = heads.share(rank).count / head_dim;
  needs.heads = std::max(needs.heads, own);
  needs.alibi |= alibi != 0;
  needs.max_cols = std::max(needs.max_cols, own * of_value());
  needs.key_dim = std::max(needs.key_dim, head_dim);
  needs.value_dim = std::max(needs.value_dim, of_value());
}

std::unique_ptr<Mixer> make_mixer(const AttentionSpec& spec, const MixerPlace& place) {
  return std::make_unique<Attention>(spec, place);
}

}  // namespace sluice
