#include "src/models/mlp.h"

namespace sluice {

Mlp::Mlp(const MlpSpec& spec, int64_t layer, int64_t hidden_size, Rank rank)
    : Module(name_in_layer(spec.name, layer)), spec_(spec) {
  std::vector<LinearPart> parts;
  for (const PartSpec& part : spec.up.parts)
    parts.push_back({name_in_layer(part.source, layer), spec.width.size, Shard::by_rows(spec.width),
                     part.view});
  if (spec.times_layer_input) {
    layer_input_ = spec.width.share(rank);
    layer_input_.begin += layer * spec.width.size;
  }
  std::vector<PieceSpec> values;
  for (const std::string& value : spec.values) values.push_back({name_in_layer(value, layer), 1});
  if (!values.empty())
    values_ = &add_param(make_vector(path() + ".values", ParamRole::bias, values, {}, 1));
  up_ = &add_child<Linear>(name_in_layer(spec.up.name, layer), parts, hidden_size, spec.up.bias,
                           rank);
  parts = {{name_in_layer(spec.down.parts[0].source, layer), hidden_size,
            Shard::by_cols(spec.width), spec.down.parts[0].view}};
  down_ = &add_child<Linear>(name_in_layer(spec.down.name, layer), parts, spec.width.size,
                             spec.down.bias, rank);
}

void Mlp::forward(const Context& context, const Activations& act, Tensor x, Tensor y) const {
  Tensor inner = act.mlp(x.rows).columns(0, up_->outputs());
  up_->forward(context, x, inner);
  Tensor first = up_->part(inner, 0);
  if (spec_.gate_multiplier != 1) context.kernels.scale(first, spec_.gate_multiplier, nullptr);
  Tensor second = spec_.up.parts.size() > 1 ? up_->part(inner, 1) : Tensor{};
  if (spec_.times_layer_input)
    second = act.layer_inputs(x.rows).columns(layer_input_.begin, layer_input_.count);
  const auto* values =
      values_ != nullptr ? reinterpret_cast<const float*>(values_->value.data) : nullptr;
  context.kernels.activate(spec_.activation, values, first, second, first);
  down_->forward(context, first, y);
}

}  // namespace sluice
