#include "src/models/experts.h"

#include "src/base/error.h"

namespace sluice {

Experts::Experts(const ExpertsSpec& spec, int64_t layer, int64_t hidden_size, Rank rank)
    : Module(name_in_layer(spec.name, layer)), spec_(spec), hidden_size_(hidden_size) {
  auto one_part = [&](const LinearSpec& linear, int64_t outputs) -> Linear& {
    const std::string source = name_in_layer(linear.parts[0].source, layer);
    return add_child<Linear>(name_in_layer(linear.name, layer),
                             std::vector<LinearPart>{{source, outputs}}, hidden_size, linear.bias,
                             Rank{}, ParamRole::router);
  };
  router_ = &one_part(spec.router, spec.count);
  if (!spec.choice_bias.empty()) {
    const std::string name = name_in_layer(spec.choice_bias, layer);
    choice_bias_ = &add_param(make_vector(name, ParamRole::bias, {{name, spec.count}}, {}, 1));
  }
  for (int64_t e = 0; e < spec.count; ++e) {
    Mlp& expert = add_child<Mlp>(spec.expert, ModulePlace{layer, e}, hidden_size, rank);
    expert.set_used(static_cast<double>(spec.choice.used) / static_cast<double>(spec.count));
    experts_.push_back(&expert);
  }
  if (spec.shared) shared_ = &add_child<Mlp>(*spec.shared, ModulePlace{layer}, hidden_size, rank);
  if (!spec.shared_gate.empty()) shared_gate_ = &one_part(one_linear(spec.shared_gate, false), 1);
}

void Experts::choose(const Context& context, const Activations& act, Tensor x,
                     Begins& begins) const {
  const Tensor logits = act.mlp(x.rows).columns(0, router_->outputs());
  router_->forward(context, x, logits);
  RouterParams params = spec_.choice;
  if (choice_bias_ != nullptr)
    params.bias = reinterpret_cast<const float*>(choice_bias_->value.data);
  const Routing& device = act.routing();
  const Routing& host = act.host_routing();
  context.kernels.route(logits.columns(0, spec_.count), params, device.choices);
  const int64_t all = x.rows * params.used;
  device.copy_choices(host, all, context.kernels.stream());
  context.kernels.stream().synchronize();

  begins.fill(0);
  for (int64_t i = 0; i < all; ++i) ++begins[static_cast<size_t>(host.choices.experts[i]) + 1];
  for (size_t e = 1; e < begins.size(); ++e) begins[e] += begins[e - 1];
  for (int64_t i = 0; i < all; ++i) {
    const int64_t at = begins[static_cast<size_t>(host.choices.experts[i])]++;
    host.rows[at] = static_cast<int32_t>(i / params.used);
    host.weights[at] = host.choices.weights[i];
  }
  for (size_t e = begins.size() - 1; e > 0; --e) begins[e] = begins[e - 1];
  begins[0] = 0;
  for (int64_t r = 0; r < x.rows; ++r) host.every_row[r] = static_cast<int32_t>(r);
  host.copy_lists(device, all, x.rows, context.kernels.stream());
}

void Experts::add_shared(const Context& context, const Activations& act, Tensor x,
                         Tensor sum) const {
  const Tensor wide = act.expert_rows(x.rows), out = wide.columns(0, hidden_size_);
  shared_->forward(context, act, x, wide);
  if (shared_gate_ == nullptr) return context.kernels.add(sum, out);
  const Tensor gate = act.mlp(x.rows).columns(0, shared_gate_->outputs());
  shared_gate_->forward(context, x, gate);
  const Tensor weights = gate.columns(0, 1);
  context.kernels.activate(Activation::sigmoid, nullptr, weights, {}, weights);
  context.kernels.index_add(out, {act.routing().every_row, static_cast<size_t>(x.rows)}, weights,
                            sum);
}

void Experts::forward(const Context& context, const Activations& act, Tensor x, Tensor y) const {
  const Kernels& kernels = context.kernels;
  const Routing& lists = act.routing();
  const Tensor sums = act.expert_sums(x.rows), sum = sums.columns(0, hidden_size_);
  const auto sum_bytes = static_cast<uint64_t>(sums.rows * sums.stride) * sizeof(float);
  check(y.stride == sums.stride && y.cols == sums.cols, "experts: an output as wide as their sum");
  Begins begins;
  choose(context, act, x, begins);
  kernels.stream().clear(sums.data, sum_bytes);
  for (size_t e = 0; e < experts_.size(); ++e) {
    const int64_t first = begins[e], count = begins[e + 1] - first;
    if (count == 0) continue;
    const std::span<const int32_t> rows(lists.rows + first, static_cast<size_t>(count));
    const Tensor wide = act.expert_rows(count), some = wide.columns(0, hidden_size_);
    kernels.index_select(x, rows, some);
    experts_[e]->forward(context, act, some, wide);
    const Tensor weights{reinterpret_cast<std::byte*>(lists.weights + first), DType::f32, count, 1,
                         1};
    kernels.index_add(some, rows, weights, sum);
  }
  if (shared_ != nullptr) add_shared(context, act, x, sum);
  kernels.stream().copy(y.data, sums.data, sum_bytes);
}

}  // namespace sluice
