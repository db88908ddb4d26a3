#include "src/models/decoder_spec.h"

#include <fmt/format.h>

namespace sluice {

std::string name_in_layer(const std::string& name, int64_t layer) {
  constexpr std::string_view kNumber = "{}";
  std::string in_layer = name;
  if (size_t at = name.find(kNumber); at != std::string::npos)
    in_layer.replace(at, kNumber.size(), fmt::format("{}", layer));
  return in_layer;
}

namespace {

template <class Visit>
void each_name(LinearSpec& linear, Visit&& visit) {
  visit(linear.name);
  for (PartSpec& part : linear.parts) visit(part.source);
}

template <class Visit>
void each_name(LayerSpec& layer, Visit&& visit) {
  visit(layer.name);
  for (MixerBranch& mixer : layer.mixers) {
    for (std::string* name : {&mixer.norm.name, &mixer.attention.name}) visit(*name);
    for (std::optional<NormSpec>* norm : {&mixer.attention.q_norm, &mixer.attention.k_norm})
      if (*norm) visit((*norm)->name);
    for (LinearSpec* linear : {&mixer.attention.qkv, &mixer.attention.output})
      each_name(*linear, visit);
  }
  for (MlpBranch& branch : layer.mlps) {
    for (std::string* name : {&branch.norm.name, &branch.mlp.name}) visit(*name);
    for (LinearSpec* linear : {&branch.mlp.up, &branch.mlp.down}) each_name(*linear, visit);
  }
}

}  // namespace

void replace_prefix(DecoderSpec& spec, std::string_view from, std::string_view to) {
  auto replace = [&](std::string& name) {
    if (name.starts_with(from)) name.replace(0, from.size(), to);
  };
  for (std::string* name : {&spec.embedding, &spec.positions, &spec.norm.name, &spec.head})
    replace(*name);
  for (LayerSpec& layer : spec.kinds) each_name(layer, replace);
}

}  // namespace sluice
