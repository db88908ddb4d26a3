// Mamba-2 (arXiv:2405.21060).
#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/models/mixers/state_mixer.h"

namespace sluice {
namespace {

class Mamba2 final : public StateMixer {
 public:
  Mamba2(const Mamba2Spec& spec, const MixerPlace& place);
  std::vector<KvSpec> kv_specs() const override;
  void forward(const Context& context, const MixerStep& step, const Activations& act,
               const RowsIn& from, const RowsOut& to) const override;

 private:
  enum Part : size_t { kQueries, kKeys, kValues, kGate, kSteps };  // C, B, x
  void add_norm();
  void recur(const Kernels& kernels, const StateRows& state, const Activations& act, Tensor all,
             Tensor out) const;
  // `sums`: room for a number a row and part of the norm.
  const float* squares(const Context& context, Tensor sums, Tensor out) const;
  void normalize(const Context& context, Tensor sums, Tensor out) const;

  const Mamba2Spec& spec_;
  int64_t heads_;  // of this rank
  const Param* log_rates_;
  const Param* step_bias_;
  const Param* skip_;
  const Param* norm_ = nullptr;  // or none
};

Mamba2::Mamba2(const Mamba2Spec& spec, const MixerPlace& place)
    : StateMixer(spec.name, place),
      spec_(spec),
      heads_(spec.heads.share(place.rank).count / spec.value_dim) {
  add_input(spec.input, spec.parts());
  const Dimension convolved[] = {spec.key_heads, spec.key_heads, spec.heads};
  add_convolution(spec.convolution, convolved);
  log_rates_ = add_of_heads(spec.log_rates, spec.heads);
  step_bias_ = add_of_heads(spec.step_bias, spec.heads);
  skip_ = add_of_heads(spec.skip, spec.heads);
  if (spec.norm.exists()) add_norm();
  add_output(spec.output, spec.heads);
}

// Its weight is small, and stays as it is, so that its parts can be taken.
void Mamba2::add_norm() {
  const std::string name = place_.name(spec_.norm.name) + ".weight";
  norm_ = &add_param(make_vector(name, ParamRole::bias,
                                 {{name, spec_.heads.size, 0, Shard::by_rows(spec_.heads)}},
                                 place_.rank, 1));
}

std::vector<KvSpec> Mamba2::kv_specs() const {
  return {convolution_state(input().part_begin(kGate)),
          {.kind = KvKind::state,
           .heads = heads_,
           .key_dim = spec_.key_dim,
           .value_dim = spec_.value_dim}};
}

void Mamba2::recur(const Kernels& kernels, const StateRows& state, const Activations& act,
                   Tensor all, Tensor out) const {
  const ScanInputs inputs{.queries = part(all, kQueries),
                          .keys = part(all, kKeys),
                          .values = part(all, kValues),
                          .decays = behind(act, all.rows, heads_),
                          .steps = part(all, kSteps)};
  kernels.decay(inputs.steps,
                {.log_rates = float_data(log_rates_),
                 .negative_rates = spec_.negative_rates,
                 .bias = float_data(step_bias_),
                 .least = spec_.least_step,
                 .most = spec_.most_step},
                inputs.decays);
  kernels.scan(inputs, {.key_dim = spec_.key_dim, .skip = float_data(skip_)}, state, out);
}

// The sums of squares of each part of the norm, over all ranks: of this rank's part.
const float* Mamba2::squares(const Context& context, Tensor sums, Tensor out) const {
  const Rank rank = context.group.rank();
  const Kernels& kernels = context.kernels;
  const Tensor all{sums.data, DType::f32, spec_.norm_parts, out.rows, out.rows};
  const int64_t own = rank.rank * spec_.norm_parts / rank.size;
  for (int64_t p = 0; p < spec_.norm_parts; ++p) {
    const Tensor part = all.rows_from(p, 1);
    kernels.sum_squares(out, {part.data, DType::f32, out.rows, 1, 1});
    if (p != own) kernels.scale(part, 0, nullptr);
  }
  context.group.sum(all, kernels);
  return all.row<float>(own);
}

void Mamba2::normalize(const Context& context, Tensor sums, Tensor out) const {
  if (norm_ == nullptr) return;
  Weight weight = norm_->value;
  NormParams params = spec_.norm.params;
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

void Mamba2::forward(const Context& context, const MixerStep& step, const Activations& act,
                     const RowsIn& from, const RowsOut& to) const {
  const Tensor all = project(context, act, from), values = part(all, kValues);
  for (size_t i = 0; i < spec_.input_multipliers.size(); ++i)
    context.kernels.scale(part(all, i), spec_.input_multipliers[i], nullptr);
  const Tensor out = act.attention(from.rows.rows).columns(0, values.cols);
  convolve(context, state_rows(step, 0), all.columns(0, input().part_begin(kGate)));
  recur(context.kernels, state_rows(step, 1), act, all, out);
  const Tensor sums{to.y.data, DType::f32, to.y.rows, 1, 1};
  if (!spec_.gate_first) normalize(context, sums, out);
  context.kernels.activate({Activation::silu}, part(all, kGate), out, out);
  if (spec_.gate_first) normalize(context, sums, out);
  write(context, out, to);
}

}  // namespace

std::array<Dimension, 5> Mamba2Spec::parts() const {
  return {key_heads, key_heads, heads, heads, resized(heads, 1)};
}

// Behind the parts of its input there is room for a number a head.
MixerWidths Mamba2Spec::widths(Rank rank) const {
  const int64_t one_a_head = padded_columns(resized(heads, 1).share(rank).count);
  return {padded_columns(parts(), rank) + one_a_head, heads.share(rank).count};
}

// Each rank has whole parts of a norm, or as many ranks have each part together.
void Mamba2Spec::divide(Rank rank) {
  if (norm_parts > 1 && norm_parts % rank.size != 0 && rank.size % norm_parts != 0)
    fail(ErrorKind::usage, "--tensor-parallel-size {} does not divide the {} parts of a norm",
         rank.size, norm_parts);
  divide_heads(heads, key_heads, rank, true);
}

void Mamba2Spec::add_workspace(Rank /*rank*/, WorkspaceNeeds& needs) const {
  add_state(heads.size, key_dim, needs);
}

std::unique_ptr<Mixer> make_mixer(const Mamba2Spec& spec, const MixerPlace& place) {
  return std::make_unique<Mamba2>(spec, place);
}

}  // namespace sluice
