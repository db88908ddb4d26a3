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
    step_bias_ = add_of_heads(spec.step_bias, spec.heads, spec.decays().unit);
    if (spec.rank > 0) {
      gate_up_ = &add_up(spec.gate_up, spec.heads);
      decay_up_ = &add_up(spec.decay_up, spec.decays());
    }
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
    Tensor gate = part(all, kGate), decays = part(all, kDecays);
    if (spec_.rank > 0) {
      const Tensor ups = behind(act, from.rows.rows, gate_up_->outputs() + decay_up_->outputs());
      const Tensor gates = ups.columns(0, gate_up_->outputs());
      const Tensor all_decays = ups.columns(gates.cols, decay_up_->outputs());
      gate_up_->forward(context, gate, gates);
      decay_up_->forward(context, decays, all_decays);
      gate = gate_up_->part(gates, 0);
      decays = decay_up_->part(all_decays, 0);
    }
    recur(kernels, state_rows(step, 1), all, decays, out);
    kernels.norm(out, norm_->value, spec_.norm.params, out);
    kernels.activate({spec_.gate}, gate, out, out);
    write(context, out, to);
  }

 private:
  enum Part : size_t { kQueries, kKeys, kValues, kGate, kDecays, kSteps };

  Linear& add_up(const LinearSpec& spec, const Dimension& outputs) {
    return add_child<Linear>(place_.name(spec.name),
                             parts_by_rows(spec, std::span(&outputs, 1), place_), spec_.rank,
                             spec.bias, place_.rank);
  }

  void recur(const Kernels& kernels, const StateRows& state, Tensor all, Tensor decays,
             Tensor out) const {
    const ScanInputs inputs{.queries = part(all, kQueries),
                            .keys = part(all, kKeys),
                            .values = part(all, kValues),
                            .decays = decays,
                            .steps = part(all, kSteps)};
    const auto d = static_cast<float>(spec_.key_dim);
    unit_->forward(kernels, inputs.queries, inputs.queries);
    unit_->forward(kernels, inputs.keys, inputs.keys);
    kernels.scale(inputs.queries, 1 / d, nullptr);
    kernels.scale(inputs.keys, 1 / std::sqrt(d), nullptr);
    kernels.decay(inputs.decays,
                  {.log_rates = float_data(log_rates_),
                   .negative_rates = spec_.negative_rates,
                   .bias = float_data(step_bias_),
                   .of_head = spec_.decays().unit,
                   .floor = spec_.decay_floor},
                  inputs.decays);
    kernels.activate({Activation::sigmoid}, inputs.steps, {}, inputs.steps);
    if (spec_.step_multiplier != 1) kernels.scale(inputs.steps, spec_.step_multiplier, nullptr);
    const ScanParams params{.key_dim = spec_.key_dim,
                            .tiled = spec_.tiled,
                            .delta = true,
                            .decays_rows = spec_.decays_rows};
    kernels.scan(inputs, params, state, out);
  }

  const GatedDeltaNetSpec& spec_;
  int64_t heads_;  // of this rank
  const Param* log_rates_;
  const Param* step_bias_;
  Linear* gate_up_ = nullptr;  // or none, as the next
  Linear* decay_up_ = nullptr;
  const Norm* unit_;  // gives queries and keys one length
  const Param* norm_;
};

}  // namespace

Dimension GatedDeltaNetSpec::decays() const { return resized(heads, decays_rows ? key_dim : 1); }

// Parts of a smaller rank are one unit, which every rank has.
std::array<Dimension, 6> GatedDeltaNetSpec::parts() const {
  const Dimension low{.size = rank, .unit = rank};
  return {key_heads,        key_heads, heads, rank > 0 ? low : heads, rank > 0 ? low : decays(),
          resized(heads, 1)};
}

MixerWidths GatedDeltaNetSpec::widths(Rank of) const {
  const Dimension ups[] = {heads, decays()};
  return {padded_columns(parts(), of) + (rank > 0 ? padded_columns(ups, of) : 0),
          heads.share(of).count};
}

void GatedDeltaNetSpec::divide(Rank of) { divide_heads(heads, key_heads, of, true); }

void GatedDeltaNetSpec::add_workspace(Rank /*of*/, WorkspaceNeeds& needs) const {
  add_state(heads.size, key_dim, needs);
}

std::unique_ptr<Mixer> make_mixer(const GatedDeltaNetSpec& spec, const MixerPlace& place) {
  return std::make_unique<GatedDeltaNet>(spec, place);
}

}  // namespace sluice
