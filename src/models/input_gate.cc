#include "src/models/input_gate.h"

namespace sluice {

InputGate::InputGate(const GateSpec& spec, int64_t layer, int64_t hidden_size)
    : Module(name_in_layer(spec.name, layer)) {
  const auto add = [&](const LinearSpec& linear, int64_t outputs, int64_t inputs) {
    const std::string source = name_in_layer(linear.parts.front().source, layer);
    return &add_child<Linear>(name_in_layer(linear.name, layer),
                              std::vector<LinearPart>{{source, outputs}}, inputs, linear.bias,
                              Rank{});
  };
  down_ = add(spec.down, spec.rank, hidden_size);
  up_ = add(spec.up, hidden_size, spec.rank);
}

void InputGate::forward(const Context& context, const Activations& act, Tensor x) const {
  const Kernels& kernels = context.kernels;
  const Tensor all = act.mlp(x.rows), low = all.columns(0, down_->outputs());
  const Tensor gates = all.columns(low.cols, up_->outputs());
  const Tensor inner = down_->part(low, 0);
  down_->forward(context, x, low);
  kernels.activate({Activation::silu}, inner, {}, inner);
  up_->forward(context, inner, gates);
  kernels.activate({Activation::sigmoid}, up_->part(gates, 0), x, x);
}

}  // namespace sluice
