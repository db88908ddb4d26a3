// A gate of what a branch reads: x times a sigmoid of a product of smaller rank.
#pragma once

#include "src/models/activations.h"
#include "src/models/decoder_spec.h"
#include "src/nn/layers.h"

namespace sluice {

class InputGate : public Module {
 public:
  InputGate(const GateSpec& spec, int64_t layer, int64_t hidden_size);
  // x = x * sigmoid(up(silu(down(x))))
  void forward(const Context& context, const Activations& act, Tensor x) const;

 private:
  Linear* down_;
  Linear* up_;
};

}  // namespace sluice
