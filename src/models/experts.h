// A mixture of experts: a router chooses some of many MLPs for each token (arXiv:1701.06538).
//
// Experts are computed one after the other, by rising numbers, each for the rows that have chosen
// it, and a row's sum is added up in that order. So the result of a row does not depend on what
// other rows have chosen.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "src/models/activations.h"
#include "src/models/decoder_spec.h"
#include "src/models/mlp.h"
#include "src/nn/layers.h"

namespace sluice {

class Experts : public Module {
 public:
  // `spec` outlives it.
  Experts(const ExpertsSpec& spec, int64_t layer, int64_t hidden_size, Rank rank);
  // x [rows, hidden_size] → y, whole panels wide, which may begin where x does. Waits for the
  // stream: the host has to know which experts there are rows for.
  void forward(const Context& context, const Activations& act, Tensor x, Tensor y) const;

 private:
  // Begins[e]: first row of expert e in the list of rows sorted by expert.
  using Begins = std::array<int64_t, kMostExperts + 1>;
  void choose(const Context& context, const Activations& act, Tensor x, Begins& begins) const;
  void add_shared(const Context& context, const Activations& act, Tensor x, Tensor sum) const;

  const ExpertsSpec& spec_;
  int64_t hidden_size_;
  Linear* router_;
  const Param* choice_bias_ = nullptr;  // or none
  std::vector<const Mlp*> experts_;
  const Mlp* shared_ = nullptr;          // or none
  const Linear* shared_gate_ = nullptr;  // or none
};

}  // namespace sluice
