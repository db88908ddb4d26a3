// Mamba (arXiv:2312.00752).
#include <algorithm>

#include "src/models/mixers/state_mixer.h"

namespace sluice {
namespace {

class Mamba final : public StateMixer {
 public:
  Mamba(const MambaSpec& spec, const MixerPlace& place);
  std::vector<KvSpec> kv_specs() const override;
  void forward(const Context& context, const MixerStep& step, const Activations& act,
               const RowsIn& from, const RowsOut& to) const override;

 private:
  enum Part : size_t { kValues, kGate };
  enum ScanPart : size_t { kSteps, kKeys, kQueries };
  void add_scan();
  // values [rows, channels of this rank] → act.attention
  void scan(const Context& context, const StateRows& state, const Activations& act,
            Tensor values) const;

  const MambaSpec& spec_;
  Linear* scan_inputs_;  // each rank has some of the values, and gets the sum of all
  std::vector<const Norm*> norms_;
  Linear* steps_;
  const Param* log_rates_;
  const Param* skip_;
};

Mamba::Mamba(const MambaSpec& spec, const MixerPlace& place)
    : StateMixer(spec.name, place), spec_(spec) {
  const Dimension parts[] = {spec.channels, spec.channels};
  add_input(spec.input, parts);
  add_convolution(spec.convolution, std::span(parts).first(1));
  add_scan();
  add_output(spec.output, spec.channels);
}

void Mamba::add_scan() {
  const Rank rank = place_.rank;
  check(spec_.scan_inputs.parts.size() == 3, "a selective scan's parts");
  const std::vector<int64_t> sizes{spec_.step_rank, spec_.key_dim, spec_.key_dim};
  std::vector<LinearPart> parts;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const PartSpec& part = spec_.scan_inputs.parts[i];
    parts.push_back(
        {place_.name(part.source), sizes[i], Shard::by_cols(spec_.channels), part.view});
  }
  scan_inputs_ = &add_child<Linear>(place_.name(spec_.scan_inputs.name), parts, spec_.channels.size,
                                    spec_.scan_inputs.bias, rank);
  for (const NormSpec& norm : spec_.norms) {
    const std::string name = place_.name(norm.name);
    const int64_t size = sizes[norms_.size()];
    norms_.push_back(
        &add_child<Norm>(name, size, norm.params, NormTensors{norm.weight, norm.bias}));
  }
  steps_ = &add_child<Linear>(place_.name(spec_.steps.name),
                              parts_by_rows(spec_.steps, {&spec_.channels, 1}, place_),
                              spec_.step_rank, spec_.steps.bias, rank);
  const auto add = [&](const std::string& source, int64_t row) {
    const std::string name = place_.name(source);
    const int64_t each = row > 0 ? row : 1;
    const Dimension wide{.size = spec_.channels.size * each, .unit = each};
    return &add_param(make_vector(name, ParamRole::bias,
                                  {{name, wide.size, 0, Shard::by_rows(wide), {.row = row}}}, rank,
                                  1));
  };
  log_rates_ = add(spec_.log_rates, spec_.key_dim);
  skip_ = add(spec_.skip, 0);
}

std::vector<KvSpec> Mamba::kv_specs() const {
  const int64_t channels = input().part_size(kValues);
  return {convolution_state(channels),
          {.kind = KvKind::state, .heads = 1, .key_dim = spec_.key_dim, .value_dim = channels}};
}

void Mamba::scan(const Context& context, const StateRows& state, const Activations& act,
                 Tensor values) const {
  const Tensor inputs = behind(act, values.rows, scan_inputs_->outputs());
  scan_inputs_->forward(context, values, inputs);
  for (size_t i = 0; i < norms_.size(); ++i) {
    const Tensor part = scan_inputs_->part(inputs, i);
    norms_[i]->forward(context.kernels, part, part);
  }
  const Tensor out = act.attention(values.rows).columns(0, steps_->outputs());
  steps_->forward(context, scan_inputs_->part(inputs, kSteps), out);
  const Tensor steps = out.columns(0, values.cols);
  context.kernels.selective_scan(
      {scan_inputs_->part(inputs, kQueries), scan_inputs_->part(inputs, kKeys), values, steps},
      {.log_rates = float_data(log_rates_),
       .negative_rates = spec_.negative_rates,
       .skip = float_data(skip_)},
      state, steps);
}

void Mamba::forward(const Context& context, const MixerStep& step, const Activations& act,
                    const RowsIn& from, const RowsOut& to) const {
  const Tensor all = project(context, act, from), values = part(all, kValues);
  const Tensor out = act.attention(from.rows.rows).columns(0, values.cols);
  convolve(context, state_rows(step, 0), values);
  scan(context, state_rows(step, 1), act, values);
  context.kernels.activate({Activation::silu}, part(all, kGate), out, out);
  write(context, out, to);
}

}  // namespace

// Behind the parts of its input there is room for what the scan reads, whose steps lie where its
// output does.
MixerWidths MambaSpec::widths(Rank rank) const {
  const int64_t part = padded_columns(channels.share(rank).count);
  return {2 * part + padded_columns(step_rank) + 2 * padded_columns(key_dim), part};
}

void MambaSpec::divide(Rank rank) { divide_heads(channels, {.size = 1}, rank); }

void MambaSpec::add_workspace(Rank /*rank*/, WorkspaceNeeds& needs) const {
  add_state(std::max(channels.size, step_rank), key_dim, needs);
}

std::unique_ptr<Mixer> make_mixer(const MambaSpec& spec, const MixerPlace& place) {
  return std::make_unique<Mamba>(spec, place);
}

}  // namespace sluice
