#include "src/models/experts.h"

#include <algorithm>
#include <bitset>

#include "src/base/error.h"
#include "src/nn/host_side.h"
#include "src/nn/weight_stream.h"

namespace sluice {

Experts::Experts(const ExpertsSpec& spec, int64_t layer, const DecoderSpec& model, Rank rank)
    : Module(name_in_layer(spec.name, layer)),
      spec_(spec),
      hidden_size_(model.hidden_size),
      row_size_(spec.latent_size > 0 ? spec.latent_size : model.hidden_size),
      one_rank_(rank.size == 1),
      adds_up_(spec.whole && rank.size > 1) {
  auto one_part = [&](const LinearSpec& linear, int64_t outputs, int64_t inputs,
                      ParamRole role) -> Linear& {
    const std::string source = name_in_layer(linear.parts[0].source, layer);
    return add_child<Linear>(name_in_layer(linear.name, layer),
                             std::vector<LinearPart>{{source, outputs}}, inputs, linear.bias,
                             Rank{}, role);
  };
  router_ = &one_part(spec.router, spec.choices(), hidden_size_, ParamRole::router);
  if (spec.latent_size > 0)
    latent_in_ = &one_part(spec.latent_in, row_size_, hidden_size_, ParamRole::linear);
  // `row`: elements of a row of the matrix that is stored; 0: it is none.
  auto vector = [&](const std::string& source, int64_t size, int64_t row = 0) -> const Param* {
    if (source.empty()) return nullptr;
    const std::string name = name_in_layer(source, layer);
    const std::vector<PieceSpec> pieces{{.source = name, .rows = size, .view = {.row = row}}};
    return &add_param(make_vector(name, ParamRole::bias, pieces, {}, 1));
  };
  choice_bias_ = vector(spec.choice_bias, spec.choices());
  choice_factors_ = vector(spec.choice_factors, spec.choices());
  choice_table_ =
      vector(spec.choice_table, model.vocab_size * spec.choice.top_k, spec.choice.top_k);
  stream_scale_ = vector(spec.stream_scale, hidden_size_);
  const Share own = spec.share(rank);
  experts_.resize(static_cast<size_t>(spec.count));
  for (int64_t e = own.begin; e < own.begin + own.count; ++e) {
    const ModulePlace place{layer, e, adds_up_ ? spec.count : 0};
    Mlp& expert = add_child<Mlp>(spec.expert, place, row_size_, adds_up_ ? Rank{} : rank);
    expert.set_expert(e,
                      static_cast<double>(spec.choice.top_k) / static_cast<double>(spec.choices()));
    experts_[static_cast<size_t>(e)] = &expert;
  }
  if (spec.shared) shared_ = &add_child<Mlp>(*spec.shared, ModulePlace{layer}, hidden_size_, rank);
  // Behind the shared expert, in the order of the computation (WeightStream::tile).
  if (spec.latent_size > 0)
    latent_out_ = &one_part(spec.latent_out, hidden_size_, row_size_, ParamRole::linear);
  if (!spec.shared_gate.empty())
    shared_gate_ =
        &one_part(one_linear(spec.shared_gate, false), 1, hidden_size_, ParamRole::router);
  check(latent_in_ == nullptr || shared_gate_ == nullptr, "a shared expert of latent rows' others");
}

namespace {

// Returns whether the device's memory has a matrix, as one.
bool is_on_device(const Linear& linear) { return linear.weight().is_resident(); }

// One matrix of all experts. nullopt: they are not of one format, or do not lie at equal steps.
template <class Get>
std::optional<ExpertMatrix> matrix_of(std::span<const Mlp* const> experts, Get get) {
  const Linear& first = get(*experts.front());
  ExpertMatrix m{.first = first.weight().value};
  if (first.bias() != nullptr) m.bias = float_data(first.bias());
  auto step_of = [](const void* from, const void* to) {
    return static_cast<const std::byte*>(to) - static_cast<const std::byte*>(from);
  };
  if (experts.size() > 1 && is_on_device(get(*experts[1]))) {
    const Linear& second = get(*experts[1]);
    m.step = step_of(m.first.data, second.weight().value.data);
    if (m.bias != nullptr) m.bias_step = step_of(m.bias, float_data(second.bias()));
  }
  for (size_t e = 0; e < experts.size(); ++e) {
    const Linear& linear = get(*experts[e]);
    const Weight& w = linear.weight().value;
    const auto number = static_cast<int64_t>(e);
    if (!is_on_device(linear) || w.format != m.first.format || w.rows != m.first.rows)
      return std::nullopt;
    for (Plane plane : kPlanes) {
      const std::byte *from = m.first.plane(plane), *at = w.plane(plane);
      if ((from == nullptr) != (at == nullptr)) return std::nullopt;
      if (from != nullptr && step_of(from, at) != number * m.step) return std::nullopt;
    }
    if (m.bias != nullptr && step_of(m.bias, float_data(linear.bias())) != number * m.bias_step)
      return std::nullopt;
  }
  return m;
}

}  // namespace

std::optional<ExpertWeights> Experts::weights_for(const Kernels& kernels) const {
  if (!one_rank_ || spec_.identities > 0) return std::nullopt;
  const MlpSpec& spec = spec_.expert;
  const Mlp& first = *experts_.front();
  if (!first.is_plain() || spec.times_layer_input || spec_.weighs_input) return std::nullopt;
  ExpertWeights w{.count = std::ssize(experts_), .up = {}, .down = {}};
  w.up.first = first.up().weight().value;
  w.down.first = first.down().weight().value;
  if (!is_on_device(first.up()) || !is_on_device(first.down())) return std::nullopt;
  w.width = w.down.first.cols;
  w.second = spec.up.parts.size() > 1 ? first.up().part_begin(1) : 0;
  w.activation = {.kind = spec.activation, .limit = spec.limit, .alpha = spec.alpha};
  w.gate_multiplier = spec.gate_multiplier;
  if (!kernels.computes_experts(w, spec_.choice.top_k)) return std::nullopt;
  const auto up = matrix_of(experts_, [](const Mlp& m) -> const Linear& { return m.up(); });
  const auto down = matrix_of(experts_, [](const Mlp& m) -> const Linear& { return m.down(); });
  if (!up || !down) return std::nullopt;
  w.up = *up;
  w.down = *down;
  if (!kernels.computes_experts(w, spec_.choice.top_k)) return std::nullopt;
  return w;
}

void Experts::route(const Context& context, const StepRows& rows, const Activations& act,
                    Tensor x) const {
  const Tensor logits = act.mlp(x.rows).columns(0, router_->outputs());
  Tensor input = x;
  if (stream_scale_ != nullptr) {
    input = act.expert_rows(x.rows).columns(0, hidden_size_);
    context.kernels.norm(act.residual(x.rows), stream_scale_->value, spec_.stream_norm, input);
  }
  router_->forward(context, input, logits);
  if (spec_.logit_multiplier != 1) context.kernels.scale(logits, spec_.logit_multiplier, nullptr);
  if (spec_.logit_soft_cap > 0) context.kernels.soft_cap(logits, spec_.logit_soft_cap);
  RouterParams params = spec_.choice;
  params.bias = float_data(choice_bias_);
  params.factors = float_data(choice_factors_);
  params.table = float_data(choice_table_);
  if (params.table != nullptr) params.ids = rows.ids;
  context.kernels.route(logits.columns(0, spec_.choices()), params, act.routing().choices);
}

void Experts::make_lists(const Context& context, const Activations& act, int64_t rows,
                         Begins& begins) const {
  const Routing& device = act.routing();
  const Routing& host = act.host_routing();
  const int64_t top_k = spec_.choice.top_k, all = rows * top_k;
  device.copy_choices(host, all, context.kernels.stream());
  context.kernels.stream().synchronize();

  begins.fill(0);
  for (int64_t i = 0; i < all; ++i) ++begins[static_cast<size_t>(host.choices.experts[i]) + 1];
  for (size_t e = 1; e < begins.size(); ++e) begins[e] += begins[e - 1];
  for (int64_t i = 0; i < all; ++i) {
    const int64_t at = begins[static_cast<size_t>(host.choices.experts[i])]++;
    host.rows[at] = static_cast<int32_t>(i / top_k);
    host.weights[at] = host.choices.weights[i];
  }
  for (size_t e = begins.size() - 1; e > 0; --e) begins[e] = begins[e - 1];
  begins[0] = 0;
  for (int64_t r = 0; r < rows; ++r) host.every_row[r] = static_cast<int32_t>(r);
  host.copy_lists(device, all, rows, context.kernels.stream());
}

SharedExpert Experts::shared_expert(const Context& context, const Activations& act,
                                    Tensor x) const {
  if (shared_ == nullptr) return {};
  SharedExpert shared{.out = act.expert_rows(x.rows)};
  shared_->forward(context, act, x, shared.out);
  if (shared_gate_ == nullptr) return shared;
  const Tensor gate = act.mlp(x.rows).columns(0, shared_gate_->outputs());
  shared_gate_->forward(context, x, gate);
  shared.weights = gate.columns(0, 1);
  context.kernels.activate({Activation::sigmoid}, shared.weights, {}, shared.weights);
  return shared;
}

void Experts::add_shared(const Context& context, const Activations& act, Tensor x,
                         Tensor sum) const {
  const SharedExpert shared = shared_expert(context, act, x);
  const Tensor out = shared.out.columns(0, hidden_size_);
  if (shared_gate_ == nullptr) return context.kernels.add(sum, out);
  context.kernels.index_add(out, {act.routing().every_row, static_cast<size_t>(x.rows)},
                            shared.weights, sum);
}

// The shared expert comes first, because y may lie where x does.
void Experts::compute_at_once(const Context& context, const Activations& act, Tensor x,
                              const ExpertWeights& weights, Tensor y) const {
  const SharedExpert shared =
      latent_in_ == nullptr ? shared_expert(context, act, x) : SharedExpert{};
  context.kernels.experts(x, weights, spec_.choice.top_k, act.routing().choices, shared, y);
}

namespace {

// The rows that have chosen an expert, and its weights for them.
struct ChosenRows {
  ChosenRows(const Routing& lists, int64_t first, int64_t end)
      : rows(lists.rows + first, static_cast<size_t>(end - first)),
        weights{reinterpret_cast<std::byte*>(lists.weights + first), DType::f32, end - first, 1,
                1} {}
  std::span<const int32_t> rows;
  Tensor weights;
};

}  // namespace

void Experts::compute_expert(size_t e, const Context& context, const Activations& act,
                             const Routing& lists, const Begins& begins, int64_t at,
                             Tensor x) const {
  const ChosenRows chosen(lists, begins[e], begins[e + 1]);
  const int64_t count = chosen.weights.rows;
  const Tensor wide = act.expert_rows(at + count).rows_from(at, count);
  const Tensor some = wide.columns(0, row_size_);
  context.kernels.index_select(x, chosen.rows, spec_.weighs_input ? chosen.weights : Tensor{},
                               some);
  experts_[e]->forward(context, act, some, wide.columns(0, experts_[e]->down().outputs()));
}

void Experts::add_output(size_t e, const Context& context, const Activations& act,
                         const Routing& lists, const Begins& begins, int64_t at, Tensor sum) const {
  const ChosenRows chosen(lists, begins[e], begins[e + 1]);
  const int64_t count = chosen.weights.rows;
  const Tensor some = act.expert_rows(at + count).rows_from(at, count).columns(0, row_size_);
  context.kernels.index_add(some, chosen.rows, spec_.weighs_input ? Tensor{} : chosen.weights, sum);
}

void Experts::add_expert(size_t e, const Context& context, const Activations& act,
                         const Routing& lists, const Begins& begins, Tensor x, Tensor sum) const {
  compute_expert(e, context, act, lists, begins, 0, x);
  add_output(e, context, act, lists, begins, 0, sum);
}

// Adds those choices that give a row as it is.
void Experts::add_identities(const Context& context, const Activations& act, const Begins& begins,
                             Tensor x, Tensor sum) const {
  const Tensor some = act.expert_rows(x.rows).columns(0, row_size_);
  for (auto e = static_cast<size_t>(spec_.count); e < static_cast<size_t>(spec_.choices()); ++e) {
    if (begins[e + 1] == begins[e]) continue;
    const ChosenRows chosen(act.routing(), begins[e], begins[e + 1]);
    const Tensor rows = some.rows_from(0, chosen.weights.rows);
    context.kernels.index_select(x, chosen.rows, {}, rows);
    context.kernels.index_add(rows, chosen.rows, chosen.weights, sum);
  }
}

bool Experts::any_on_host(const Context& context, int64_t rows) const {
  return context.host != nullptr && std::ranges::any_of(experts_, [&](const Mlp* e) {
           return e != nullptr && e->is_on_host(rows);
         });
}

// The device has its own work by now; what comes back is put behind that.
void Experts::add_from_host(const Context& context, const Activations& act, const Begins& begins,
                            int64_t rows, Tensor sum) const {
  const Activations& host = act.host();
  const Context there{context.host->kernels(), context.group, context.host, true};
  const Tensor sums = host.expert_sums(rows), x = host.normed(rows).columns(0, row_size_);
  std::fill_n(sums.row<float>(0), sums.rows * sums.stride, 0.0F);
  for (size_t e = 0; e < experts_.size(); ++e) {
    if (begins[e + 1] > begins[e] && experts_[e] != nullptr && experts_[e]->is_on_host(rows))
      add_expert(e, there, host, act.host_routing(), begins, x, sums.columns(0, row_size_));
  }
  const Tensor back = act.expert_rows(rows);
  copy_rows(back, sums, context.kernels.stream());
  context.kernels.add(sum, back.columns(0, row_size_));
}

void Experts::compute_in_turn(const Context& all, const Activations& act, Tensor x,
                              Tensor y) const {
  // Experts that the CPU does not compute as a whole come to the device.
  const Context context{all.kernels, all.group};
  const Kernels& kernels = context.kernels;
  const bool beside = any_on_host(all, x.rows);
  const Tensor sums = act.expert_sums(x.rows), sum = sums.columns(0, row_size_);
  const auto sum_bytes = static_cast<uint64_t>(sums.rows * sums.stride) * sizeof(float);
  check(y.stride == sums.stride && y.cols == sums.cols, "experts: an output as wide as their sum");
  Begins begins;
  if (beside) copy_rows(act.host().normed(x.rows).columns(0, row_size_), x, kernels.stream());
  make_lists(context, act, x.rows, begins);
  // Experts that have rows, and are computed here.
  const auto is_here = [&](size_t e) {
    return experts_[e] != nullptr && begins[e + 1] > begins[e] &&
           !(beside && experts_[e]->is_on_host(x.rows));
  };
  for (size_t e = 0; e < experts_.size(); ++e) {
    if (experts_[e] == nullptr) continue;
    const bool is_wanted = is_here(e);
    expect(experts_[e]->up().weight(), is_wanted);
    expect(experts_[e]->down().weight(), is_wanted);
  }
  kernels.stream().clear(sums.data, sum_bytes);
  // Experts that need no wait come first, where there is room for the outputs of all; the sum has
  // the same order.
  const bool apart = x.rows * spec_.choice.top_k <= act.max_rows();
  std::bitset<kMostExperts> is_done;
  for (size_t e = 0; e < experts_.size() && apart; ++e) {
    is_done[e] = is_here(e) && is_at_hand(experts_[e]->up().weight()) &&
                 is_at_hand(experts_[e]->down().weight());
    if (is_done[e]) compute_expert(e, context, act, act.routing(), begins, begins[e], x);
  }
  for (size_t e = 0; e < experts_.size(); ++e) {
    if (!is_here(e)) continue;
    const int64_t at = apart ? begins[e] : 0;
    if (!is_done[e]) compute_expert(e, context, act, act.routing(), begins, at, x);
    add_output(e, context, act, act.routing(), begins, at, sum);
  }
  if (adds_up_) context.group.sum(sums, kernels);
  add_identities(context, act, begins, x, sum);
  if (shared_ != nullptr && latent_in_ == nullptr) add_shared(all, act, x, sum);
  if (beside) add_from_host(all, act, begins, x.rows, sum);
  kernels.stream().copy(y.data, sums.data, sum_bytes);
}

void Experts::compute(const Context& context, const Activations& act, Tensor x, Tensor y) const {
  if (const auto weights = weights_for(context.kernels)) {
    compute_at_once(context, act, x, *weights, y.columns(0, experts_.front()->down().outputs()));
  } else {
    compute_in_turn(context, act, x, y);
  }
}

// The shared expert comes before y is written, because y may lie where x does.
void Experts::forward(const Context& context, const StepRows& rows, const Activations& act,
                      Tensor x, Tensor y) const {
  route(context, rows, act, x);
  if (latent_in_ == nullptr) return compute(context, act, x, y);
  const Tensor wide = act.latent_rows(x.rows), latent = wide.columns(0, row_size_);
  latent_in_->forward(context, x, wide.columns(0, latent_in_->outputs()));
  compute(context, act, latent, wide);
  const SharedExpert shared = shared_expert(context, act, x);
  latent_out_->forward(context, latent, y);
  if (shared_ != nullptr)
    context.kernels.add(y.columns(0, hidden_size_), shared.out.columns(0, hidden_size_));
}

}  // namespace sluice
