// An MLP: down(activation(gate) * up), or without gate down(activation(up)).
#pragma once

#include "src/models/activations.h"
#include "src/models/decoder_spec.h"
#include "src/nn/layers.h"

namespace sluice {

class Mlp : public Module {
 public:
  // `spec` outlives it.
  Mlp(const MlpSpec& spec, ModulePlace place, int64_t hidden_size, Rank rank);
  // Rows of hidden_size columns → to.y, whole panels wide, which may begin where the input or its
  // norm does.
  void forward(const Context& context, const Activations& act, const RowsIn& from,
               const RowsOut& to) const;
  // Says that it is a router's expert, which a share of the tokens uses.
  void set_expert(int64_t number, double share);

  // Its parameters, for who computes many of them at once.
  const Linear& up() const { return *up_; }
  const Linear& down() const { return *down_; }
  // Returns whether it has those two alone.
  bool is_plain() const { return values_ == nullptr && inner_norm_ == nullptr; }
  // Returns whether the CPU beside the device computes all of it in a step of so many rows.
  bool is_on_host(int64_t rows) const;

 private:
  void forward_on_host(const Context& context, const Activations& act, Tensor x, Tensor y) const;
  void write(const Context& context, const Activations& act, Tensor inner, const RowsOut& to) const;

  const MlpSpec& spec_;
  Share layer_input_;                 // its columns, of all layers' inputs
  const Param* values_ = nullptr;     // of the activation; or none
  const Norm* inner_norm_ = nullptr;  // or none
  Linear* up_;
  Linear* down_;
};

}  // namespace sluice
