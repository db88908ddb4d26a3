// Gated DeltaNet (arXiv:2412.06464).
#include <algorithm>
#include <cmath>

#include "src/models/mixers/state_mixer.h"

namespace sluice {
namespace {

class GatedDeltaNet final : public StateMixer {
 public:
  GatedDeltaNet(const GatedDeltaNetSpec& spec, const MixerPlace& place)
      : StateMixer(spec.name, place),
        spec_(spec),
        heads_(spec.heads.share(place.rank).count / spec.value_dim) {
    add_input(spec.input, spec.parts());
    const Dimension convolved[] = {spec.key_heads, spec.key_heads, spec.heads};
    add_convolution(spec.convolution, convolved);
    log_rates_ = add_of_heads(spec.log_rates, spec.heads);
    step_bias_ = add_of_heads(spec.step_bias, spec.heads);
    // x / sqrt(sum(x^2) + 1e-6), but for a factor.
    constexpr float kEps = 1e-6F;
    unit_ = &add_child<Norm>(path() + ".unit_norm", spec.key_dim,
                             NormParams{.eps = kEps / static_cast<float>(spec.key_dim)},
                             NormTensors{.weight = false});
    const std::string norm = place.name(spec.norm.name) + ".weight";
    norm_ = &add_param(
        make_vector(norm, ParamRole::bias, {PieceSpec{norm, spec.value_dim}}, place.rank, 1));
    add_output(spec.output, spec.heads);
  }

  std::vector<KvSpec> kv_specs() const override {
    return {convolution_state(input().part_begin(kGate)),
            {.kind = KvKind::state,
             .heads = heads_,
             .key_dim = spec_.key_dim,
             .value_dim = spec_.value_dim}};
  }

  void forward(const Context& context, const MixerStep& step, const Activations& act,
               const RowsIn& from, const RowsOut& to) const override {
    const Kernels& kernels = context.kernels;
    const Tensor all = project(context, act, from), values = part(all, kValues);
    const Tensor out = act.attention(from.rows.rows).columns(0, values.cols);
    convolve(context, state_rows(step, 0), all.columns(0, input().part_begin(kGate)));
    recur(kernels, state_rows(step, 1), all, out);
    kernels.norm(out, norm_->value, spec_.norm.params, out);
    kernels.activate({Activation::silu}, part(all, kGate), out, out);
    write(context, out, to);
  }

 private:
  enum Part : size_t { kQueries, kKeys, kValues, kGate, kDecays, kSteps };

  void recur(const Kernels& kernels, const StateRows& state, Tensor all, Tensor out) const {
    const ScanInputs inputs{.queries = part(all, kQueries),
                            .keys = part(all, kKeys),
                            .values = part(all, kValues),
                            .decays = part(all, kDecays),
                            .steps = part(all, kSteps)};
    const auto d = static_cast<float>(spec_.key_dim);
    unit_->forward(kernels, inputs.queries, inputs.queries);
    unit_->forward(kernels, inputs.keys, inputs.keys);
    kernels.scale(inputs.queries, 1 / d, nullptr);
    kernels.scale(inputs.keys, 1 / std::sqrt(d), nullptr);
    kernels.decay(inputs.decays,
                  {.log_rates = float_data(log_rates_), .bias = float_data(step_bias_)},
                  inputs.decays);
    kernels.activate({Activation::sigmoid}, inputs.steps, {}, inputs.steps);
    kernels.scan(inputs, {.key_dim = spec_.key_dim, .delta = true}, state, out);
  }

  const GatedDeltaNetSpec& spec_;
  int64_t heads_;  // of this rank
  const Param* log_rates_;
  const Param* step_bias_;
  const Norm* unit_;  // gives queries and keys one length
  const Param* norm_;
};

}  // namespace

std::array<Dimension, 6> GatedDeltaNetSpec::parts() const {
  const Dimension one = resized(heads, 1);
  return {key_heads, key_heads, heads, heads, one, one};
}

MixerWidths GatedDeltaNetSpec::widths(Rank rank) const {
  return {padded_columns(parts(), rank), heads.share(rank).count};
}

void GatedDeltaNetSpec::divide(Rank rank) { divide_heads(heads, key_heads, rank); }

void GatedDeltaNetSpec::add_workspace(Rank /*rank*/, WorkspaceNeeds& needs) const {
  add_state(heads.size, key_dim, needs);
}

std::unique_ptr<Mixer> make_mixer(const GatedDeltaNetSpec& spec, const MixerPlace& place) {
  return std::make_unique<GatedDeltaNet>(spec, place);
}

}  // namespace sluice
