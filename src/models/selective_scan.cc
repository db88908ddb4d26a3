#include "src/models/selective_scan.h"

namespace sluice {

SelectiveScan::SelectiveScan(const StateMixerSpec& spec, int64_t layer, Rank rank)
    : Module(name_in_layer(spec.name, layer) + ".scan"), spec_(spec) {
  const SelectiveSpec& selective = spec.selective;
  check(selective.inputs.parts.size() == 3 && spec.value_dim == 1, "a selective scan's parts");
  const std::vector<int64_t> sizes{selective.step_rank, spec.key_dim, spec.key_dim};
  std::vector<LinearPart> parts;
  for (size_t i = 0; i < sizes.size(); ++i)
    parts.push_back({name_in_layer(selective.inputs.parts[i].source, layer), sizes[i],
                     Shard::by_cols(spec.heads), selective.inputs.parts[i].view});
  inputs_ = &add_child<Linear>(name_in_layer(selective.inputs.name, layer), parts, spec.heads.size,
                               selective.inputs.bias, rank);
  add_norms(layer);
  parts = {{name_in_layer(selective.steps.parts[0].source, layer), spec.heads.size,
            Shard::by_rows(spec.heads), selective.steps.parts[0].view}};
  steps_ = &add_child<Linear>(name_in_layer(selective.steps.name, layer), parts,
                              selective.step_rank, selective.steps.bias, rank);
  const auto add = [&](const std::string& source, int64_t row) {
    const std::string name = name_in_layer(source, layer);
    const int64_t each = row > 0 ? row : 1;
    const Dimension wide{.size = spec.heads.size * each, .unit = each};
    return &add_param(make_vector(name, ParamRole::bias,
                                  {{name, wide.size, 0, Shard::by_rows(wide), {.row = row}}}, rank,
                                  1));
  };
  log_rates_ = add(spec.log_rates, spec.key_dim);
  skip_ = add(spec.skip, 0);
}

void SelectiveScan::add_norms(int64_t layer) {
  for (const NormSpec& norm : spec_.selective.norms) {
    const std::string name = name_in_layer(norm.name, layer);
    const int64_t size = norms_.empty() ? spec_.selective.step_rank : spec_.key_dim;
    norms_.push_back(norm.weight ? &add_child<Norm>(name, size, norm.params, norm.bias)
                                 : &add_child<Norm>(name, size, norm.params));
  }
}

void SelectiveScan::forward(const Context& context, const StateRows& state, const Activations& act,
                            Tensor values, Tensor inputs) const {
  inputs_->forward(context, values, inputs);
  for (size_t i = 0; i < norms_.size(); ++i) {
    const Tensor part = inputs_->part(inputs, i);
    norms_[i]->forward(context.kernels, part, part);
  }
  const Tensor out = act.attention(values.rows).columns(0, steps_->outputs());
  steps_->forward(context, inputs_->part(inputs, kSteps), out);
  const Tensor steps = out.columns(0, values.cols);
  context.kernels.selective_scan(
      {inputs_->part(inputs, kQueries), inputs_->part(inputs, kKeys), values, steps},
      {.log_rates = float_data(log_rates_), .skip = float_data(skip_)}, state, steps);
}

}  // namespace sluice
