// A mixture of experts: a router chooses some of many MLPs for each token (arXiv:1701.06538).
//
// Either the kernels compute all chosen experts at once (Kernels::experts), and nobody waits; or
// experts are computed one after the other, each for the rows that have chosen it, by lists that
// the host makes. Which of the two depends on the kernels, on where and how the plan keeps the
// weights, and on choices that have none (identities), and so is the same for all steps. In both a
// row's sum is added up by rising numbers, so that its result does not depend on what other rows
// have chosen. Where each rank has some of the experts, ranks compute their own, and a row's sum is
// that of the ranks' sums.
//
// Beside a device, the CPU computes the experts that lie in host memory while the device computes
// the others and the shared one; their sum is added to the device's.
#pragma once

#include <array>
#include <optional>
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
  Experts(const ExpertsSpec& spec, int64_t layer, const DecoderSpec& model, Rank rank);
  // x [rows, hidden_size] → y, whole panels wide, which may begin where x does.
  void forward(const Context& context, const StepRows& rows, const Activations& act, Tensor x,
               Tensor y) const;
  // Returns whether forward() waits for the stream: the host has to know which experts there are
  // rows for.
  bool waits(const Kernels& kernels) const { return !weights_for(kernels); }

 private:
  // Begins[e]: first row of expert e in the list of rows sorted by expert.
  using Begins = std::array<int64_t, kMostExperts + 1>;
  // The weights of all experts, if `kernels` compute them at once; nullopt: one after the other, as
  // weights that are streamed, that differ in their formats or lie irregularly.
  std::optional<ExpertWeights> weights_for(const Kernels& kernels) const;
  void route(const Context& context, const StepRows& rows, const Activations& act, Tensor x) const;
  void make_lists(const Context& context, const Activations& act, int64_t rows,
                  Begins& begins) const;
  // Computes the shared expert, and its weights if it has a gate.
  SharedExpert shared_expert(const Context& context, const Activations& act, Tensor x) const;
  // y: of all rows of x what their experts give, and unless rows are latent, the shared one.
  void compute(const Context& context, const Activations& act, Tensor x, Tensor y) const;
  void compute_at_once(const Context& context, const Activations& act, Tensor x,
                       const ExpertWeights& weights, Tensor y) const;
  void compute_in_turn(const Context& context, const Activations& act, Tensor x, Tensor y) const;
  // The output of one expert for the rows that `lists` has for it, in those of expert_rows() from
  // `at` on.
  void compute_expert(size_t e, const Context& context, const Activations& act,
                      const Routing& lists, const Begins& begins, int64_t at, Tensor x) const;
  // Adds it to `sum`.
  void add_output(size_t e, const Context& context, const Activations& act, const Routing& lists,
                  const Begins& begins, int64_t at, Tensor sum) const;
  void add_expert(size_t e, const Context& context, const Activations& act, const Routing& lists,
                  const Begins& begins, Tensor x, Tensor sum) const;
  void add_identities(const Context& context, const Activations& act, const Begins& begins,
                      Tensor x, Tensor sum) const;
  bool any_on_host(const Context& context, int64_t rows) const;
  void add_from_host(const Context& context, const Activations& act, const Begins& begins,
                     int64_t rows, Tensor sum) const;
  void add_shared(const Context& context, const Activations& act, Tensor x, Tensor sum) const;

  const ExpertsSpec& spec_;
  int64_t hidden_size_;
  int64_t row_size_;  // of what experts read and make
  bool one_rank_;     // whose outputs are no parts of sums
  bool adds_up_;      // experts of other ranks have parts of the sum
  Linear* router_;
  const Param* choice_bias_ = nullptr;  // or none, as these
  const Param* choice_factors_ = nullptr;
  const Param* choice_table_ = nullptr;
  const Param* stream_scale_ = nullptr;
  const Linear* latent_in_ = nullptr;  // or none, and then no other
  const Linear* latent_out_ = nullptr;
  std::vector<const Mlp*> experts_;      // null: another rank's
  const Mlp* shared_ = nullptr;          // or none
  const Linear* shared_gate_ = nullptr;  // or none
};

}  // namespace sluice
