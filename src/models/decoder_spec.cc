#include "src/models/decoder_spec.h"

#include <fmt/format.h>

namespace sluice {

namespace {

void put_number(std::string& name, std::string_view placeholder, int64_t number) {
  if (const size_t at = name.find(placeholder); at != std::string::npos)
    name.replace(at, placeholder.size(), fmt::format("{}", number));
}

template <class Visit>
void each_name(LinearSpec& linear, Visit&& visit) {
  visit(linear.name);
  for (PartSpec& part : linear.parts) visit(part.source);
}

template <class Visit>
void each_name(LayerSpec& layer, Visit&& visit) {
  for (std::string* name : {&layer.name, &layer.scalar}) visit(*name);
  for (MixerBranch& mixer : layer.mixers) {
    visit(mixer.attention.name);
    for (LinearSpec* linear : {&mixer.attention.qkv, &mixer.attention.output})
      each_name(*linear, visit);
    if (!mixer.state) continue;
    StateMixerSpec& s = *mixer.state;
    for (std::string* name : {&s.name, &s.convolution.name, &s.log_rates, &s.step_bias, &s.skip})
      visit(*name);
    for (LinearSpec* linear : {&s.input, &s.selective.inputs, &s.selective.steps, &s.output})
      each_name(*linear, visit);
  }
  for (MlpBranch& branch : layer.mlps) {
    each_mlp(branch, [&](MlpSpec& mlp) {
      visit(mlp.name);
      for (std::string& value : mlp.values) visit(value);
      for (LinearSpec* linear : {&mlp.up, &mlp.down}) each_name(*linear, visit);
    });
    if (!branch.experts) continue;
    ExpertsSpec& e = *branch.experts;
    for (std::string* name :
         {&e.name, &e.choice_bias, &e.stacked_gate_up, &e.stacked_down, &e.shared_gate})
      visit(*name);
    each_name(e.router, visit);
  }
}

}  // namespace

std::string name_at(const std::string& name, ModulePlace place) {
  std::string there = name;
  put_number(there, "{}", place.layer);
  if (place.expert) put_number(there, "{e}", *place.expert);
  return there;
}

std::vector<Dimension> part_dimensions(const StateMixerSpec& spec) {
  if (spec.kind == StateKind::selective) return {spec.heads, spec.heads};
  const Dimension one_a_head{.size = spec.heads.units()};
  std::vector<Dimension> parts{spec.key_heads, spec.key_heads, spec.heads};
  if (spec.kind != StateKind::convolution) parts.insert(parts.end(), {spec.heads, one_a_head});
  if (spec.kind == StateKind::delta) parts.push_back(one_a_head);
  return parts;
}

int64_t DecoderSpec::usable_positions() const {
  int64_t usable = max_positions;
  for (const RopeConfig& rope : ropes) usable = std::max(usable, rope.usable_positions());
  return usable;
}

Share DecoderSpec::angle_columns(size_t rope) const {
  Share columns;
  for (size_t i = 0; i < rope; ++i) columns.begin += ropes[i].dim / 2;
  columns.count = ropes[rope].dim / 2;
  return columns;
}

int64_t DecoderSpec::angle_columns() const {
  int64_t columns = 0;
  for (const RopeConfig& rope : ropes) columns += rope.dim / 2;
  return columns;
}

void replace_prefix(DecoderSpec& spec, std::string_view from, std::string_view to) {
  auto replace = [&](std::string& name) {
    if (name.starts_with(from)) name.replace(0, from.size(), to);
  };
  for (std::string* name : {&spec.embedding, &spec.positions, &spec.head, &spec.input_projection,
                            &spec.output_projection})
    replace(*name);
  if (spec.layer_inputs) {
    for (std::string* name : {&spec.layer_inputs->table, &spec.layer_inputs->projection})
      replace(*name);
  }
  for (std::string& pattern : spec.ignorable) replace(pattern);
  each_norm(spec, [&](NormSpec& norm) { replace(norm.name); });
  for (LayerSpec& layer : spec.kinds) each_name(layer, replace);
}

}  // namespace sluice
