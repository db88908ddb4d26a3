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
  int64_t residual = 0, normed = 0, beside = 0, qkv = 0, attention = 0, mlp = 0;
  int64_t layer_inputs = 0, layer_rows = 0;
  std::array<int64_t, 8> all() const {
    return {residual, normed, beside, qkv, attention, mlp, layer_inputs, layer_rows};
  }
};

// Behind the parts of its input there is room for a number a head, or for what a selective scan
// reads, whose steps lie where its output does.
void add_state_mixer(const StateMixerSpec& spec, Rank rank, Widths& w) {
  const int64_t heads = spec.heads.share(rank).count;
  const bool selective = spec.kind == StateKind::selective;
  int64_t parts = selective ? padded(spec.selective.step_rank) + 2 * padded(spec.key_dim)
                            : padded(Dimension{.size = spec.heads.units()}.share(rank).count);
  for (const Dimension& part : part_dimensions(spec)) parts += padded(part.share(rank).count);
  w.qkv = std::max(w.qkv, parts);
  w.attention = std::max(w.attention, selective ? padded(heads) : heads);
}

Widths widths(const DecoderSpec& spec, Rank rank) {
  Widths w;
  w.residual = w.normed = padded(spec.hidden_size);  // a linear layer's output is whole panels wide
  for (const LayerSpec& layer : spec.kinds) {
    for (const MixerBranch& mixer : layer.mixers) {
      if (mixer.input == BranchInput::layer_input) w.beside = w.normed;
      if (mixer.state) {
        add_state_mixer(*mixer.state, rank, w);
        continue;
      }
      const int64_t heads = mixer.attention.heads.share(rank).count;
      const int64_t kv = mixer.attention.kv_heads.share(rank).count;
      w.attention = std::max(w.attention, heads);
      const int64_t gate = mixer.attention.output_gate ? padded(heads) : 0;
      w.qkv = std::max(w.qkv, padded(heads) + 2 * padded(kv) + gate);
    }
    for (const MlpBranch& branch : layer.mlps) {
      const auto parts = std::ssize(branch.mlp.up.parts);
      w.mlp = std::max(w.mlp, parts * padded(branch.mlp.width.share(rank).count));
      if (branch.input == BranchInput::layer_input) w.beside = w.normed;
    }
  }
  if (spec.layer_inputs) {
    w.layer_rows = spec.layer_inputs->width * std::ssize(spec.layers);
    w.layer_inputs = padded(w.layer_rows);
  }
  return w;
}

uint64_t matrix_bytes(int64_t rows, int64_t cols) {
  return round_up(static_cast<uint64_t>(rows) * static_cast<uint64_t>(cols) * sizeof(float), 64);
}

}  // namespace

uint64_t Activations::bytes(const DecoderSpec& spec, int64_t max_rows, Rank rank) {
  uint64_t total = 0;
  for (int64_t width : widths(spec, rank).all()) total += matrix_bytes(max_rows, width);
  return total;
}

Activations::Activations(const DecoderSpec& spec, int64_t max_rows, Rank rank,
                         std::span<std::byte> memory) {
  check(memory.size() >= bytes(spec, max_rows, rank), "activation memory is too small");
  const std::array<Tensor*, 8> matrices{&residual_,  &normed_, &beside_,       &qkv_,
                                        &attention_, &mlp_,    &layer_inputs_, &layer_rows_};
  const std::array<int64_t, 8> cols = widths(spec, rank).all();
  std::byte* at = memory.data();
  for (size_t i = 0; i < matrices.size(); ++i) {
    *matrices[i] = {at, DType::f32, max_rows, cols[i], cols[i]};
    at += matrix_bytes(max_rows, cols[i]);
  }
  residual_.cols = spec.hidden_size;
}

}  // namespace sluice
