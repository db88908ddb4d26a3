// The gated short convolution of LFM2.
#include <algorithm>

#include "src/models/mixers/state_mixer.h"

namespace sluice {
namespace {

class ShortConvolution final : public StateMixer {
 public:
  ShortConvolution(const ShortConvolutionSpec& spec, const MixerPlace& place)
      : StateMixer(spec.name, place) {
    const Dimension parts[] = {spec.channels, spec.channels, spec.channels};
    add_input(spec.input, parts);
    add_convolution(spec.convolution, std::span(parts).first(1));
    add_output(spec.output, spec.channels);
  }

  std::vector<KvSpec> kv_specs() const override {
    return {convolution_state(input().part_size(kValues))};
  }

  void forward(const Context& context, const MixerStep& step, const Activations& act,
               const RowsIn& from, const RowsOut& to) const override {
    const Kernels& kernels = context.kernels;
    const Tensor all = project(context, act, from), values = part(all, kValues);
    const Tensor out = act.attention(from.rows.rows).columns(0, values.cols);
    kernels.activate({Activation::identity}, values, part(all, kKeys), values);
    convolve(context, state_rows(step, 0), values);
    kernels.activate({Activation::identity}, values, part(all, kQueries), out);
    write(context, out, to);
  }

 private:
  enum Part : size_t { kQueries, kKeys, kValues };
};

}  // namespace

MixerWidths ShortConvolutionSpec::widths(Rank rank) const {
  const int64_t own = channels.share(rank).count;
  return {3 * padded_columns(own), own};
}

void ShortConvolutionSpec::divide(Rank rank) { divide_heads(channels, {.size = 1}, rank); }

void ShortConvolutionSpec::add_workspace(Rank /*rank*/, WorkspaceNeeds& needs) const {
  add_state(channels.size, 1, needs);
}

std::unique_ptr<Mixer> make_mixer(const ShortConvolutionSpec& spec, const MixerPlace& place) {
  return std::make_unique<ShortConvolution>(spec, place);
}

}  // namespace sluice
