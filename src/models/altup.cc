#include "src/models/altup.h"

namespace sluice {
namespace {

constexpr float kLeastSquare = 1e-5F;  // as transformers has it

void copy(const Kernels& kernels, Tensor from, Tensor to) {
  kernels.activate({Activation::identity}, from, {}, to);
}

}  // namespace

AltUpEntry::AltUpEntry(const AltUpSpec& spec, int64_t hidden_size) : Module("altup.entry") {
  for (const std::string& name : spec.entries)
    products_.push_back(&add_child<Linear>(name, std::vector<LinearPart>{{name, hidden_size}},
                                           hidden_size, false, Rank{}));
}

void AltUpEntry::forward(const Context& context, const Activations& act, int64_t rows) const {
  const Tensor first = act.residual(rows), all = act.altup(rows), wide = act.normed(rows);
  const int64_t size = first.cols;
  copy(context.kernels, first, all.columns(0, size));
  for (size_t i = 0; i < products_.size(); ++i) {
    products_[i]->forward(context, first, wide);
    copy(context.kernels, wide.columns(0, size),
         all.columns(static_cast<int64_t>(i + 1) * size, size));
  }
  context.kernels.match_squares(all.columns(size, all.cols - size), first, kLeastSquare);
}

AltUpExit::AltUpExit(const AltUpSpec& spec, int64_t hidden_size) : Module("altup.exit") {
  for (const std::string& name : spec.exits)
    products_.push_back(&add_child<Linear>(name, std::vector<LinearPart>{{name, hidden_size}},
                                           hidden_size, false, Rank{}));
}

void AltUpExit::forward(const Context& context, const Activations& act, int64_t rows) const {
  const Kernels& kernels = context.kernels;
  const Tensor residual = act.residual(rows), all = act.altup(rows), wide = act.normed(rows);
  const int64_t size = residual.cols;
  const Tensor product = wide.columns(0, size), first = all.columns(0, size);
  for (size_t i = 0; i < products_.size(); ++i) {
    const Tensor stream = all.columns(static_cast<int64_t>(i + 1) * size, size);
    copy(kernels, stream, residual);
    products_[i]->forward(context, residual, wide);
    kernels.match_squares(product, first, kLeastSquare);
    copy(kernels, product, stream);
  }
  copy(kernels, first, residual);
  for (size_t i = 0; i < products_.size(); ++i)
    kernels.add(residual, all.columns(static_cast<int64_t>(i + 1) * size, size));
  kernels.scale(residual, 1 / static_cast<float>(products_.size() + 1), nullptr);
}

AltUpLayer::AltUpLayer(const AltUpSpec& spec, int64_t layer, int64_t hidden_size)
    : Module(name_in_layer(spec.router, layer) + ".altup"), spec_(spec), hidden_size_(hidden_size) {
  norm_ = &add_child<Norm>(name_in_layer(spec.router_norm.name, layer), hidden_size,
                           spec.router_norm.params, NormTensors{});
  const auto matrix = [&](const std::string& in_layer, int64_t outputs, int64_t inputs) {
    const std::string name = name_in_layer(in_layer, layer);
    return &add_child<Linear>(name, std::vector<LinearPart>{{name, outputs}}, inputs, false, Rank{},
                              ParamRole::router);
  };
  router_ = matrix(spec.router, spec.count, hidden_size);
  predictions_ = matrix(spec.predictions, spec.count * spec.count, spec.count);
  corrections_ = matrix(spec.corrections, spec.count, spec.count);
  if (spec.scale.empty()) return;
  const std::string name = name_in_layer(spec.scale, layer);
  scale_ = &add_param(make_vector(name, ParamRole::bias, {{name, hidden_size}}, {}, 1));
}

Tensor AltUpLayer::stream(const Activations& act, int64_t rows, int64_t number) const {
  return act.altup(rows).columns(number * hidden_size_, hidden_size_);
}

Tensor AltUpLayer::coefficients(const Context& context, const Activations& act, Tensor stream,
                                const Linear& by, int64_t count) const {
  const Kernels& kernels = context.kernels;
  const Tensor normed = act.normed(stream.rows).columns(0, hidden_size_),
               room = act.qkv(stream.rows);
  const Tensor wide = room.columns(0, router_->outputs()), routed = wide.columns(0, spec_.count);
  const Tensor made = room.columns(router_->outputs(), by.outputs());
  norm_->forward(kernels, stream, normed);
  router_->forward(context, normed, wide);
  kernels.scale(routed, 1 / static_cast<float>(hidden_size_), nullptr);
  kernels.soft_cap(routed, 1);  // tanh
  by.forward(context, routed, made);
  return made.columns(0, count);
}

void AltUpLayer::predict(const Context& context, const Activations& act, int64_t rows) const {
  const Tensor computed = stream(act, rows, spec_.computed), all = act.altup(rows);
  const Tensor weights =
      coefficients(context, act, computed, *predictions_, spec_.count * spec_.count);
  context.kernels.mix(all, weights, 0, hidden_size_, all);
  copy(context.kernels, computed, act.residual(rows));
}

void AltUpLayer::correct(const Context& context, const Activations& act, int64_t rows) const {
  const Kernels& kernels = context.kernels;
  const Tensor residual = act.residual(rows), computed = stream(act, rows, spec_.computed);
  const Tensor weights = coefficients(context, act, residual, *corrections_, spec_.count);
  kernels.scale(residual, -1, nullptr);
  kernels.add(residual, computed);
  kernels.scale(residual, -1, nullptr);  // what is new in it
  kernels.mix(residual, weights, 1, hidden_size_, act.altup(rows));
  copy(kernels, computed, residual);
  if (scale_ == nullptr) return;
  kernels.scale_heads(residual, {scale_->value.data, DType::f32, 1, hidden_size_, hidden_size_});
}

void AltUpLayer::add(const Context& context, const Activations& act, int64_t rows) const {
  for (int64_t i = 1; i < spec_.count; ++i)
    context.kernels.add(stream(act, rows, i), act.normed(rows).columns(0, hidden_size_));
}

}  // namespace sluice
