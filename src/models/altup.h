// The residual streams of a decoder with AltUp (AltUpSpec), as modules: the beginning, each layer's
// part, and the end.
#pragma once

#include <vector>

#include "src/models/activations.h"
#include "src/models/decoder_spec.h"
#include "src/nn/layers.h"

namespace sluice {

// Makes the streams of act.residual().
class AltUpEntry : public Module {
 public:
  AltUpEntry(const AltUpSpec& spec, int64_t hidden_size);
  void forward(const Context& context, const Activations& act, int64_t rows) const;

 private:
  std::vector<const Linear*> products_;
};

// Makes act.residual() of the streams.
class AltUpExit : public Module {
 public:
  AltUpExit(const AltUpSpec& spec, int64_t hidden_size);
  void forward(const Context& context, const Activations& act, int64_t rows) const;

 private:
  std::vector<const Linear*> products_;
};

class AltUpLayer : public Module {
 public:
  // `spec` outlives it.
  AltUpLayer(const AltUpSpec& spec, int64_t layer, int64_t hidden_size);
  // Predicts all streams, and leaves the one to compute in act.residual().
  void predict(const Context& context, const Activations& act, int64_t rows) const;
  // Corrects all by what has become of that, and leaves what the last branch reads in its place.
  void correct(const Context& context, const Activations& act, int64_t rows) const;
  // Adds act.normed() to all streams but the first.
  void add(const Context& context, const Activations& act, int64_t rows) const;

 private:
  Tensor stream(const Activations& act, int64_t rows, int64_t number) const;
  // Coefficients that `by` makes of a stream.
  Tensor coefficients(const Context& context, const Activations& act, Tensor stream,
                      const Linear& by, int64_t count) const;

  const AltUpSpec& spec_;
  int64_t hidden_size_;
  const Norm* norm_;
  const Linear* router_;
  const Linear* predictions_;
  const Linear* corrections_;
  const Param* scale_ = nullptr;  // or none
};

}  // namespace sluice
