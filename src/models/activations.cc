#include "src/models/activations.h"

#include <algorithm>

#include "quant/format.h"
#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice {
namespace {

int64_t padded(int64_t outputs) { return ceil_div(outputs, kPanelRows) * kPanelRows; }

// In the order of Activations' members.
struct Widths {
  int64_t residual = 0, stream_weights = 0, normed = 0, beside = 0, qkv = 0, attention = 0, mlp = 0;
  int64_t layer_inputs = 0, layer_rows = 0, expert_rows = 0, expert_sums = 0, latent_rows = 0,
          chosen = 0;
  int64_t altup = 0;
  std::array<int64_t, 14> all() const {
    return {residual,     stream_weights, normed,      beside,      qkv,         attention, mlp,
            layer_inputs, layer_rows,     expert_rows, expert_sums, latent_rows, chosen,    altup};
  }
};

void add_gate(const GateSpec& gate, Widths& w) {
  if (gate.exists()) w.mlp = std::max(w.mlp, padded(gate.rank) + w.normed);
}

void add_mlp(const MlpBranch& branch, Rank rank, Widths& w) {
  add_gate(branch.input_gate, w);
  if (branch.experts && branch.experts->whole) rank = {};
  each<MlpSpec>(branch, [&](const MlpSpec& mlp) {
    const auto parts = std::ssize(mlp.up.parts);
    w.mlp = std::max(w.mlp, parts * padded(mlp.width.share(rank).count));
  });
  if (branch.input == BranchInput::layer_input) w.beside = w.normed;
  if (!branch.experts) return;
  w.mlp = std::max(w.mlp, padded(branch.experts->choices()));  // the router's logits
  w.expert_rows = w.expert_sums = w.normed;
  if (branch.experts->latent_size > 0) w.latent_rows = w.normed;
}

Widths widths(const DecoderSpec& spec, Rank rank) {
  Widths w;
  w.residual = padded(spec.stream_columns());  // a linear layer's output is whole panels wide
  w.normed = padded(spec.hidden_size);
  const int64_t streams = spec.streams.count;
  if (spec.streams.last.exists()) w.stream_weights = padded(streams * (2 + streams));
  for (const LayerSpec& layer : spec.kinds) {
    for (const MixerBranch& mixer : layer.mixers) {
      if (mixer.input == BranchInput::layer_input) w.beside = w.normed;
      add_gate(mixer.input_gate, w);
      const MixerWidths own =
          std::visit([&](const auto& held) { return held.widths(rank); }, mixer.mixer);
      w.qkv = std::max(w.qkv, own.inputs);
      w.attention = std::max(w.attention, own.output);
      w.chosen = std::max(w.chosen, own.chosen);
    }
    for (const MlpBranch& branch : layer.mlps) add_mlp(branch, rank, w);
  }
  if (spec.layer_inputs) {
    w.layer_rows = spec.layer_inputs->width * std::ssize(spec.layers);
    w.layer_inputs = padded(w.layer_rows);
  }
  if (spec.altup) {
    const int64_t count = spec.altup->count;
    w.altup = count * spec.hidden_size;
    w.qkv = std::max(w.qkv, padded(count) + padded(count * count));
  }
  return w;
}

uint64_t matrix_bytes(int64_t rows, int64_t cols) {
  return round_up(static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols) * sizeof(float), 64);
}

// Returns the most values of one token that any layer keeps.
int64_t most_top_k(const DecoderSpec& spec) {
  int64_t top_k = 0;
  for (const LayerSpec& layer : spec.kinds) {
    for (const MlpBranch& branch : layer.mlps)
      if (branch.experts) top_k = std::max(top_k, branch.experts->choice.top_k);
  }
  return top_k;
}

// Copies an array from one place to the same of another.
template <class T>
void copy_array(const T* from, T* to, int64_t count, DeviceStream& stream) {
  stream.copy(reinterpret_cast<std::byte*>(to), reinterpret_cast<const std::byte*>(from),
              static_cast<uint64_t>(count) * sizeof(T));
}

}  // namespace

uint64_t Routing::bytes(int64_t rows, int64_t top_k) {
  const auto each = 2 * (sizeof(int32_t) + sizeof(float)) * static_cast<uint64_t>(top_k);
  return top_k == 0
             ? 0
             : round_up(static_cast<uint64_t>(rows) * (each + sizeof(int32_t)), uint64_t{64});
}

Routing::Routing(int64_t rows_of_step, int64_t top_k, std::byte* memory) {
  const int64_t all = rows_of_step * top_k;
  choices.experts = reinterpret_cast<int32_t*>(memory);
  choices.weights = reinterpret_cast<float*>(choices.experts + all);
  rows = reinterpret_cast<int32_t*>(choices.weights + all);
  weights = reinterpret_cast<float*>(rows + all);
  every_row = reinterpret_cast<int32_t*>(weights + all);
}

void Routing::copy_choices(const Routing& to, int64_t count, DeviceStream& stream) const {
  if (to.rows == rows) return;
  copy_array(choices.experts, to.choices.experts, count, stream);
  copy_array(choices.weights, to.choices.weights, count, stream);
}

void Routing::copy_lists(const Routing& to, int64_t count, int64_t rows_of_step,
                         DeviceStream& stream) const {
  if (to.rows == rows) return;
  copy_array(rows, to.rows, count, stream);
  copy_array(weights, to.weights, count, stream);
  copy_array(every_row, to.every_row, rows_of_step, stream);
}

uint64_t Activations::host_bytes(const DecoderSpec& spec, int64_t max_rows) {
  return Routing::bytes(max_rows, most_top_k(spec));
}

uint64_t Activations::bytes(const DecoderSpec& spec, int64_t max_rows, Rank rank) {
  uint64_t total = host_bytes(spec, max_rows);
  for (int64_t width : widths(spec, rank).all()) total += matrix_bytes(max_rows, width);
  return total;
}

Activations::Activations(const DecoderSpec& spec, int64_t max_rows, Rank rank,
                         std::span<std::byte> memory, std::span<std::byte> host) {
  check(memory.size() >= bytes(spec, max_rows, rank), "activation memory is too small");
  check(host.empty() || host.size() >= host_bytes(spec, max_rows), "routing memory is too small");
  const std::array<Tensor*, 14> matrices{
      &residual_, &stream_weights_, &normed_,     &beside_,      &qkv_,         &attention_,
      &mlp_,      &layer_inputs_,   &layer_rows_, &expert_rows_, &expert_sums_, &latent_rows_,
      &chosen_,   &altup_};
  const std::array<int64_t, 14> cols = widths(spec, rank).all();
  std::byte* at = memory.data();
  for (size_t i = 0; i < matrices.size(); ++i) {
    *matrices[i] = {at, DType::f32, max_rows, cols[i], cols[i]};
    at += matrix_bytes(max_rows, cols[i]);
  }
  residual_.cols = spec.stream_columns();
  routing_ = {max_rows, most_top_k(spec), at};
  host_routing_ = host.empty() ? routing_ : Routing{max_rows, most_top_k(spec), host.data()};
}

Tensor Activations::wide_residual(int64_t rows, int64_t outputs) const {
  Tensor wide = residual(rows);
  wide.cols = padded(outputs);
  check(wide.cols <= wide.stride, "room for the outputs");
  return wide;
}

}  // namespace sluice
