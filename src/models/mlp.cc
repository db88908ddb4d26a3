#include "src/models/mlp.h"

#include "src/nn/host_side.h"

namespace sluice {

namespace {

LinearPart linear_part(const PartSpec& spec, ModulePlace place, int64_t outputs,
                       const Shard& shard) {
  LinearPart part{name_at(spec.source, place), outputs, shard, spec.view, spec.bare};
  if (!spec.stacked) return part;
  part.view.index = place.expert;
  part.view.stack = place.stack;
  return part;
}

}  // namespace

Mlp::Mlp(const MlpSpec& spec, ModulePlace place, int64_t hidden_size, Rank rank)
    : Module(name_at(spec.name, place)), spec_(spec) {
  std::vector<LinearPart> parts;
  for (const PartSpec& part : spec.up.parts)
    parts.push_back(linear_part(part, place, spec.width.size, Shard::by_rows(spec.width)));
  if (spec.times_layer_input) {
    layer_input_ = spec.width.share(rank);
    layer_input_.begin += place.layer * spec.width.size;
  }
  std::vector<PieceSpec> values;
  for (const std::string& value : spec.values) values.push_back({name_at(value, place), 1});
  if (!values.empty())
    values_ = &add_param(make_vector(path() + ".values", ParamRole::bias, values, {}, 1));
  up_ = &add_child<Linear>(name_at(spec.up.name, place), parts, hidden_size, spec.up.bias, rank);
  if (spec.inner_norm.exists())
    inner_norm_ = &add_child<Norm>(name_at(spec.inner_norm.name, place), spec.width.size,
                                   spec.inner_norm.params, NormTensors{}, spec.width, rank);
  parts = {linear_part(spec.down.parts[0], place, hidden_size, Shard::by_cols(spec.width))};
  down_ = &add_child<Linear>(name_at(spec.down.name, place), parts, spec.width.size, spec.down.bias,
                             rank);
}

void Mlp::set_expert(int64_t number, double share) {
  up_->set_expert(number, share);
  down_->set_expert(number, share);
}

bool Mlp::is_on_host(int64_t rows) const {
  return is_plain() && !spec_.times_layer_input && is_multiplied_by_host(up_->weight(), rows) &&
         is_multiplied_by_host(down_->weight(), rows);
}

// All of it by the CPU: activations cross the link once in each direction.
void Mlp::forward_on_host(const Context& context, const Activations& act, Tensor x,
                          Tensor y) const {
  const Activations& host = act.host();
  const Tensor input = host.normed(x.rows).columns(0, x.cols);
  const Tensor output = host.wide_residual(x.rows, y.cols);
  DeviceStream& stream = context.kernels.stream();
  copy_rows(input, x, stream);
  context.host->await(stream);
  forward({context.host->kernels(), context.group, context.host, true}, host, input, output);
  copy_rows(y, output, stream);
}

void Mlp::write(const Context& context, const Activations& act, Tensor inner,
                const RowsOut& to) const {
  if (inner_norm_ != nullptr)
    inner_norm_->forward_part(context, inner, act.attention(inner.rows), inner);
  down_->forward(context, inner, to);
}

void Mlp::forward(const Context& context, const Activations& act, const RowsIn& from,
                  const RowsOut& to) const {
  const int64_t rows = from.rows.rows;
  if (context.host != nullptr && !context.on_host && is_on_host(rows))
    return forward_on_host(context, act, from.read(context.kernels), to.y);
  Tensor inner = act.mlp(rows).columns(0, up_->outputs());
  const ActivationParams activation{.kind = spec_.activation,
                                    .values = float_data(values_),
                                    .limit = spec_.limit,
                                    .alpha = spec_.alpha};
  Tensor first = up_->part(inner, 0);
  const bool gated = spec_.up.parts.size() > 1 && !spec_.times_layer_input;
  if (gated && spec_.gate_multiplier == 1 && !spec_.cut &&
      up_->forward_activated(context, from, first.cols, activation, inner))
    return write(context, act, first, to);
  up_->forward(context, from, inner);
  if (spec_.gate_multiplier != 1) context.kernels.scale(first, spec_.gate_multiplier, nullptr);
  if (spec_.cut) {
    const Tensor moments{act.attention(rows).data, DType::f32, rows, 2, 2};
    context.kernels.sum_moments(first, moments);
    context.group.sum(moments, context.kernels);
    context.kernels.cut(first, *spec_.cut, moments, spec_.width.size);
  }
  Tensor second = spec_.up.parts.size() > 1 ? up_->part(inner, 1) : Tensor{};
  if (spec_.times_layer_input)
    second = act.layer_inputs(rows).columns(layer_input_.begin, layer_input_.count);
  context.kernels.activate(activation, first, second, first);
  write(context, act, first, to);
}

}  // namespace sluice
