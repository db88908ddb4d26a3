// Lightning attention (arXiv:2401.04658): linear attention with a decay for each head.
#include <algorithm>

#include "src/models/mixers/state_mixer.h"

namespace sluice {
namespace {

class LightningAttention final : public StateMixer {
 public:
  LightningAttention(const LightningSpec& spec, const MixerPlace& place)
      : StateMixer(spec.name, place),
        spec_(spec),
        own_(resized(spec.heads, 1).share(place.rank)),
        layer_(static_cast<size_t>(place.layer)) {
    const Dimension parts[] = {spec.heads, spec.heads, spec.heads, spec.heads};
    add_input(spec.input, parts);
    norm_ = &add_child<Norm>(place.name(spec.norm.name), spec.heads.size, spec.norm.params,
                             NormTensors{}, spec.heads, place.rank);
    add_output(spec.output, spec.heads);
  }

  std::vector<KvSpec> kv_specs() const override {
    return {{.kind = KvKind::state,
             .heads = own_.count,
             .key_dim = spec_.heads.unit,
             .value_dim = spec_.heads.unit}};
  }

  void forward(const Context& context, const MixerStep& step, const Activations& act,
               const RowsIn& from, const RowsOut& to) const override {
    const Kernels& kernels = context.kernels;
    const Tensor all = project(context, act, from), values = part(all, kValues);
    for (const size_t of : {kQueries, kKeys, kValues})
      kernels.activate({spec_.activation}, part(all, of), {}, part(all, of));
    const Tensor out = act.attention(from.rows.rows).columns(0, values.cols);
    recur(kernels, state_rows(step, 0), act, all, out);
    norm_->forward_part(context, out, to.y, out);
    kernels.activate({Activation::sigmoid}, part(all, kGate), out, out);
    write(context, out, to);
  }

 private:
  enum Part : size_t { kQueries, kKeys, kValues, kGate };

  void recur(const Kernels& kernels, const StateRows& state, const Activations& act, Tensor all,
             Tensor out) const {
    const Tensor room = behind(act, all.rows, 2 * own_.count);
    const ScanInputs inputs{.queries = part(all, kQueries),
                            .keys = part(all, kKeys),
                            .values = part(all, kValues),
                            .decays = room.columns(0, own_.count),
                            .steps = room.columns(own_.count, own_.count)};
    const DecaySlopes slopes{
        .heads = spec_.heads.units(), .first = own_.begin, .factor = spec_.factors[layer_]};
    kernels.slope_decays(slopes, inputs.decays);
    kernels.slope_decays({.heads = slopes.heads, .factor = 0}, inputs.steps);  // steps of 1
    kernels.scan(inputs, {.key_dim = spec_.heads.unit}, state, out);
  }

  const LightningSpec& spec_;
  Share own_;  // this rank's heads
  size_t layer_;
  const Norm* norm_;
};

}  // namespace

// Behind the parts of its input there is room for two numbers a head.
MixerWidths LightningSpec::widths(Rank rank) const {
  const int64_t own = heads.share(rank).count;
  return {4 * padded_columns(own) + padded_columns(2 * own / heads.unit), own};
}

void LightningSpec::divide(Rank rank) { divide_heads(heads, heads, rank); }

void LightningSpec::add_workspace(Rank /*rank*/, WorkspaceNeeds& needs) const {
  add_state(heads.size, heads.unit, needs);
}

std::unique_ptr<Mixer> make_mixer(const LightningSpec& spec, const MixerPlace& place) {
  return std::make_unique<LightningAttention>(spec, place);
}

}  // namespace sluice
