#include "src/models/state_mixer.h"

#include <cmath>
#include <utility>

namespace sluice {
namespace {

// The same heads in elements of another size.
Dimension resized(const Dimension& heads, int64_t unit) {
  return {.size = heads.units() * unit, .unit = unit};
}

StateRows rows_of(std::span<const KvRows> groups, const LayerKv& state) {
  return {state.state, groups.subspan(state.group, static_cast<size_t>(state_pages(state.state)))};
}

}  // namespace

StateMixer::StateMixer(const StateMixerSpec& spec, int64_t layer, int64_t hidden_size, Rank rank)
    : Module(name_in_layer(spec.name, layer)),
      spec_(spec),
      heads_(spec.heads.share(rank).count / spec.value_dim) {
  const std::vector<Dimension> dimensions = part_dimensions(spec);
  check(spec.input.parts.size() == dimensions.size(), "a state mixer's parts");
  std::vector<LinearPart> parts;
  for (size_t i = 0; i < dimensions.size(); ++i)
    parts.push_back({name_in_layer(spec.input.parts[i].source, layer), dimensions[i].size,
                     Shard::by_rows(dimensions[i]), spec.input.parts[i].view});
  input_ = &add_child<Linear>(name_in_layer(spec.input.name, layer), parts, hidden_size,
                              spec.input.bias, rank);
  add_convolution(layer, rank);
  if (spec.kind == StateKind::selective) {
    selective_ = &add_child<SelectiveScan>(spec, layer, rank);
  } else if (spec.kind != StateKind::convolution) {
    add_recurrence(layer, rank);
  }
  parts = {{name_in_layer(spec.output.parts[0].source, layer), hidden_size,
            Shard::by_cols(spec.heads), spec.output.parts[0].view}};
  output_ = &add_child<Linear>(name_in_layer(spec.output.name, layer), parts, spec.heads.size,
                               spec.output.bias, rank);
}

// Its tensors [channels, 1, width] and [channels] are vectors of the parts, which begin where the
// parts of the input do.
void StateMixer::add_convolution(int64_t layer, Rank rank) {
  const ConvolutionSpec& conv = spec_.convolution;
  const std::string name = name_in_layer(conv.name, layer);
  const Dimension* all[] = {&spec_.key_heads, &spec_.key_heads, &spec_.heads};
  std::vector<PieceSpec> weights, biases;
  for (size_t i = 0; i < conv.first.size(); ++i) {
    const Dimension& heads = *all[i + std::size(all) - conv.first.size()];
    const Dimension wide = resized(heads, heads.unit * conv.width);
    weights.push_back({name + ".weight",
                       wide.size,
                       0,
                       Shard::by_rows(wide),
                       {.first = conv.first[i] * conv.width}});
    biases.push_back(
        {name + ".bias", heads.size, 0, Shard::by_rows(heads), {.first = conv.first[i]}});
  }
  weight_ = &add_param(
      make_vector(name + ".weight", ParamRole::bias, weights, rank, kPanelRows * conv.width));
  if (conv.bias)
    bias_ = &add_param(make_vector(name + ".bias", ParamRole::bias, biases, rank, kPanelRows));
}

void StateMixer::add_recurrence(int64_t layer, Rank rank) {
  const Dimension one_a_head = resized(spec_.heads, 1);
  auto add = [&](const std::string& source) {
    const std::string name = name_in_layer(source, layer);
    return &add_param(make_vector(
        name, ParamRole::bias, {{name, one_a_head.size, 0, Shard::by_rows(one_a_head)}}, rank, 1));
  };
  log_rates_ = add(spec_.log_rates);
  step_bias_ = add(spec_.step_bias);
  if (!spec_.skip.empty()) skip_ = add(spec_.skip);
  if (spec_.kind == StateKind::delta) {
    // x / sqrt(sum(x^2) + 1e-6), but for a factor.
    constexpr float kEps = 1e-6F;
    unit_ = &add_child<Norm>(path() + ".unit_norm", spec_.key_dim,
                             NormParams{.eps = kEps / static_cast<float>(spec_.key_dim)});
  }
  if (spec_.norm.exists()) add_norm(layer, rank);
}

// Its weight is small, and stays as it is, so that its parts can be taken.
void StateMixer::add_norm(int64_t layer, Rank rank) {
  const std::string name = name_in_layer(spec_.norm.name, layer) + ".weight";
  PieceSpec weight{name, spec_.value_dim};
  if (spec_.norm_parts > 0) weight = {name, spec_.heads.size, 0, Shard::by_rows(spec_.heads)};
  norm_ = &add_param(make_vector(name, ParamRole::bias, {weight}, rank, 1));
}

size_t StateMixer::index(StatePart part) const {
  const StatePart first =
      spec_.kind == StateKind::selective ? StatePart::values : StatePart::queries;
  return static_cast<size_t>(part) - static_cast<size_t>(first);
}

Tensor StateMixer::convolved(Tensor all) const {
  const bool of_values = spec_.kind == StateKind::convolution || spec_.kind == StateKind::selective;
  if (of_values) return part(all, StatePart::values);
  return all.columns(0, input_->part_begin(index(StatePart::gate)));
}

std::vector<KvSpec> StateMixer::kv_specs() const {
  const Tensor all{nullptr, DType::f32, 0, input_->outputs(), input_->outputs()};
  std::vector<KvSpec> specs{{.kind = KvKind::state,
                             .heads = 1,
                             .key_dim = spec_.convolution.width - 1,
                             .value_dim = convolved(all).cols}};
  if (spec_.kind == StateKind::convolution) return specs;
  const bool selective = spec_.kind == StateKind::selective;
  specs.push_back({.kind = KvKind::state,
                   .heads = selective ? 1 : heads_,
                   .key_dim = spec_.key_dim,
                   .value_dim = selective ? heads_ : spec_.value_dim});
  return specs;
}

void StateMixer::convolve(const Context& context, const StateRows& state, Tensor x) const {
  context.kernels.causal_conv(x,
                              {.weight = float_data(weight_),
                               .bias = float_data(bias_),
                               .width = spec_.convolution.width,
                               .silu = spec_.convolution.silu},
                              state, x);
}

void StateMixer::recur(const Context& context, const StateRows& state, const Activations& act,
                       Tensor all, Tensor out) const {
  const Kernels& kernels = context.kernels;
  ScanInputs inputs{.queries = part(all, StatePart::queries),
                    .keys = part(all, StatePart::keys),
                    .values = part(all, StatePart::values),
                    .decays = part(all, StatePart::decays),
                    .steps = {}};
  const DecayParams decay{.log_rates = float_data(log_rates_),
                          .bias = float_data(step_bias_),
                          .least = spec_.least_step,
                          .most = spec_.most_step};
  const bool delta = spec_.kind == StateKind::delta;
  if (delta) {
    const auto d = static_cast<float>(spec_.key_dim);
    unit_->forward(kernels, inputs.queries, inputs.queries);
    unit_->forward(kernels, inputs.keys, inputs.keys);
    kernels.scale(inputs.queries, 1 / d, nullptr);
    kernels.scale(inputs.keys, 1 / std::sqrt(d), nullptr);
    kernels.decay(inputs.decays, decay, inputs.decays);
    inputs.steps = part(all, StatePart::steps);
    kernels.activate(Activation::sigmoid, nullptr, inputs.steps, {}, inputs.steps);
  } else {
    inputs.steps = inputs.decays;
    inputs.decays = act.qkv(all.rows).columns(input_->outputs(), heads_);
    kernels.decay(inputs.steps, decay, inputs.decays);
  }
  const ScanParams params{.key_dim = spec_.key_dim, .delta = delta, .skip = float_data(skip_)};
  kernels.scan(inputs, params, state, out);
}

// The sums of squares of each part of the norm, over all ranks: of this rank's part.
const float* StateMixer::squares(const Context& context, Tensor sums, Tensor out) const {
  const Rank rank = context.group.rank();
  const Kernels& kernels = context.kernels;
  const Tensor all{sums.data, DType::f32, spec_.norm_parts, out.rows, out.rows};
  const int64_t own = rank.rank * spec_.norm_parts / rank.size;
  for (int64_t p = 0; p < spec_.norm_parts; ++p) {
    const Tensor part = all.rows_from(p, 1);
    kernels.sum_squares(out, {part.data, DType::f32, out.rows, 1, 1});
    if (p != own) kernels.scale(part, 0, nullptr);
  }
  context.group.sum(all, kernels.stream());
  return all.row<float>(own);
}

void StateMixer::normalize(const Context& context, Tensor sums, Tensor out) const {
  if (norm_ == nullptr) return;
  Weight weight = norm_->value;
  NormParams params = spec_.norm.params;
  if (spec_.norm_parts == 0) return context.kernels.norm(out, weight, params, out);
  weight.cols = spec_.heads.size / spec_.norm_parts;
  if (weight.cols > out.cols) {  // several ranks have it
    params.squares = squares(context, sums, out);
    params.squares_cols = std::exchange(weight.cols, out.cols);
  }
  for (int64_t first = 0; first < out.cols; first += weight.cols) {
    const Tensor part = out.columns(first, weight.cols);
    context.kernels.norm(part, weight, params, part);
    weight.data += weight.cols * static_cast<int64_t>(sizeof(float));
  }
}

void StateMixer::gate(const Context& context, Tensor gate, Tensor sums, Tensor out) const {
  if (!spec_.gate_first) normalize(context, sums, out);
  context.kernels.activate(Activation::silu, nullptr, gate, out, out);
  if (spec_.gate_first) normalize(context, sums, out);
}

void StateMixer::forward(const Context& context, std::span<const KvRows> groups,
                         std::span<const LayerKv> states, const Activations& act, Tensor x,
                         Tensor y) const {
  const Kernels& kernels = context.kernels;
  const Tensor all = act.qkv(x.rows).columns(0, input_->outputs());
  input_->forward(context, x, all);
  for (size_t i = 0; i < spec_.input_multipliers.size(); ++i)
    kernels.scale(input_->part(all, i), spec_.input_multipliers[i], nullptr);
  const Tensor values = part(all, StatePart::values);
  const Tensor out = act.attention(x.rows).columns(0, values.cols);
  if (spec_.kind == StateKind::convolution) {
    const Tensor keys = part(all, StatePart::keys), queries = part(all, StatePart::queries);
    kernels.activate(Activation::identity, nullptr, values, keys, values);
    convolve(context, rows_of(groups, states[0]), values);
    kernels.activate(Activation::identity, nullptr, values, queries, out);
  } else {
    convolve(context, rows_of(groups, states[0]), convolved(all));
    const StateRows state = rows_of(groups, states[1]);
    if (selective_ != nullptr) {
      const Tensor behind = act.qkv(x.rows).columns(input_->outputs(), selective_->inputs_cols());
      selective_->forward(context, state, act, values, behind);
    } else {
      recur(context, state, act, all, out);
    }
    gate(context, part(all, StatePart::gate), {y.data, DType::f32, y.rows, 1, 1}, out);
  }
  output_->forward(context, out, y);
}

}  // namespace sluice
