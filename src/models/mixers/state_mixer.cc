#include "src/models/mixers/state_mixer.h"

#include <algorithm>

namespace sluice {

StateMixer::StateMixer(const std::string& name, const MixerPlace& place)
    : Mixer(place.name(name)), place_(place) {}

void StateMixer::add_input(const LinearSpec& spec, std::span<const Dimension> parts) {
  input_ = &add_child<Linear>(place_.name(spec.name), parts_by_rows(spec, parts, place_),
                              place_.model.hidden_size, spec.bias, place_.rank);
}

// Its tensors [channels, 1, width] and [channels] are vectors of the parts, which begin where the
// parts of the input do.
void StateMixer::add_convolution(const ConvolutionSpec& spec, std::span<const Dimension> of) {
  check(
      of.size() == spec.first.size() && (spec.sources.empty() || spec.sources.size() == of.size()),
      "a convolution's parts");
  convolution_ = &spec;
  const std::string name = place_.name(spec.name);
  std::vector<PieceSpec> weights, biases;
  for (size_t i = 0; i < of.size(); ++i) {
    const Dimension wide = resized(of[i], of[i].unit * spec.width);
    const std::string source = spec.sources.empty() ? name : place_.name(spec.sources[i]);
    weights.push_back({source + ".weight",
                       wide.size,
                       0,
                       Shard::by_rows(wide),
                       {.first = spec.first[i] * spec.width}});
    biases.push_back(
        {source + ".bias", of[i].size, 0, Shard::by_rows(of[i]), {.first = spec.first[i]}});
  }
  weight_ = &add_param(make_vector(name + ".weight", ParamRole::bias, weights, place_.rank,
                                   kPanelRows * spec.width));
  if (spec.bias) {
    bias_ =
        &add_param(make_vector(name + ".bias", ParamRole::bias, biases, place_.rank, kPanelRows));
  }
}

const Param* StateMixer::add_of_heads(const std::string& source, const Dimension& heads,
                                      int64_t each) {
  if (source.empty()) return nullptr;
  const Dimension all = resized(heads, each);
  const std::string name = place_.name(source);
  return &add_param(make_vector(name, ParamRole::bias, {{name, all.size, 0, Shard::by_rows(all)}},
                                place_.rank, 1));
}

void StateMixer::add_output(const LinearSpec& spec, const Dimension& heads) {
  const int64_t hidden = place_.model.hidden_size;
  output_ = &add_child<Linear>(place_.name(spec.name), part_by_cols(spec, heads, hidden, place_),
                               heads.size, spec.bias, place_.rank);
}

Tensor StateMixer::project(const Context& context, const Activations& act,
                           const RowsIn& from) const {
  const Tensor all = act.qkv(from.rows.rows).columns(0, input_->outputs());
  input_->forward(context, from, all);
  return all;
}

void StateMixer::convolve(const Context& context, const StateRows& state, Tensor x) const {
  context.kernels.causal_conv(x,
                              {.weight = float_data(weight_),
                               .bias = float_data(bias_),
                               .width = convolution_->width,
                               .silu = convolution_->silu},
                              state, x);
}

KvSpec StateMixer::convolution_state(int64_t columns) const {
  return {
      .kind = KvKind::state, .heads = 1, .key_dim = convolution_->width - 1, .value_dim = columns};
}

StateRows StateMixer::state_rows(const MixerStep& step, size_t state) {
  const LayerKv& kv = step.caches[state];
  return {kv.state, step.rows.kv.subspan(kv.group, static_cast<size_t>(state_pages(kv.state)))};
}

}  // namespace sluice
