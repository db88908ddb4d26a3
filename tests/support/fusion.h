// Linear layers whose parts a checkpoint stores otherwise than Llama does: in one tensor, or turned
// over. The parts stay what they are; their pieces become views.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "src/models/registry.h"
#include "tests/support/checkpoint.h"

namespace sluice::test {

struct Fusion {
  std::vector<std::string> parts;    // "model.layers.0.mlp.gate_proj", ...
  std::string into;                  // "model.layers.0.mlp.gate_up"
  bool transposed = false;           // weights are [inputs, outputs]
  bool stacked = false;              // part i is [i] of a first dimension
  std::vector<int64_t> groups = {};  // outputs of each part in a run; none: part after part
};

// Returns the view of part `i`. `outputs`: the outputs of each part's layer.
inline View view_of(const Fusion& f, size_t i, const std::vector<int64_t>& outputs) {
  View view;
  view.transposed = f.transposed;
  if (f.stacked) view.index = static_cast<int64_t>(i);
  const std::vector<int64_t>& sizes = f.groups.empty() ? outputs : f.groups;
  auto end = sizes.begin() + static_cast<std::ptrdiff_t>(i);
  if (!f.stacked) view.first = std::accumulate(sizes.begin(), end, int64_t{0});
  view.group = f.groups.empty() ? outputs[i] : f.groups[i];
  view.stride =
      f.groups.empty() ? outputs[i] : std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  return view;
}

// The tensors of the parts, as one.
inline TinyTensor fused(const Fusion& f, const std::vector<TinyTensor>& parts) {
  TinyTensor whole = parts.front();
  const bool vector = whole.shape.size() == 1;
  const int64_t inputs = vector ? 1 : whole.shape.back();
  const auto element = static_cast<int64_t>(whole.bytes.size()) / (whole.shape.front() * inputs);
  std::vector<int64_t> outputs;
  for (const TinyTensor& p : parts) outputs.push_back(p.shape.front());
  const int64_t all =
      f.stacked ? outputs.front() : std::accumulate(outputs.begin(), outputs.end(), int64_t{0});
  whole.shape = vector         ? std::vector{all}
                : f.transposed ? std::vector{inputs, all}
                               : std::vector{all, inputs};
  if (f.stacked) whole.shape.insert(whole.shape.begin(), std::ssize(parts));
  whole.bytes.assign(
      static_cast<size_t>((f.stacked ? std::ssize(parts) : 1) * all * inputs * element), '\0');
  for (size_t i = 0; i < parts.size(); ++i) {
    const View v = view_of(f, i, outputs);
    for (int64_t o = 0; o < outputs[i]; ++o) {
      const int64_t to = v.first + o / v.group * v.stride + o % v.group;
      for (int64_t c = 0; c < inputs; ++c) {
        int64_t at = f.transposed && !vector ? c * all + to : to * inputs + c;
        at += v.index.value_or(0) * all * inputs;
        std::copy_n(parts[i].bytes.begin() + (o * inputs + c) * element, element,
                    whole.bytes.begin() + at * element);
      }
    }
  }
  return whole;
}

// The tensors as a checkpoint with such layers has them.
inline void fuse(const Fusion& f, std::vector<TinyTensor>& tensors) {
  for (const char* suffix : {".weight", ".bias"}) {
    std::vector<TinyTensor> parts;
    for (const std::string& part : f.parts) {
      auto at = std::ranges::find(tensors, part + suffix, &TinyTensor::name);
      if (at == tensors.end()) continue;
      parts.push_back(std::move(*at));
      tensors.erase(at);
    }
    if (parts.empty()) continue;
    tensors.push_back(fused(f, parts));
    tensors.back().name = f.into + suffix;
  }
}

// The model whose checkpoint that is.
inline void fuse(const Fusion& f, Model& model) {
  model.root->each_param([&](Param& param) {
    std::vector<int64_t> outputs;
    for (const Piece& p : param.pieces) outputs.push_back(p.outputs());
    for (Piece& p : param.pieces) {
      for (size_t i = 0; i < f.parts.size(); ++i) {
        if (!p.source.starts_with(f.parts[i] + ".")) continue;
        p.source.replace(0, f.parts[i].size(), f.into);
        p.view = view_of(f, i, outputs);
        if (p.vector) p.view.transposed = false;
        break;
      }
    }
  });
}

}  // namespace sluice::test
