// A selective scan (Mamba, arXiv:2312.00752) with what makes its steps, B and C of the values that
// it scans.
#pragma once

#include <vector>

#include "src/models/activations.h"
#include "src/models/decoder_spec.h"
#include "src/nn/layers.h"

namespace sluice {

class SelectiveScan : public Module {
 public:
  // `spec` outlives it.
  SelectiveScan(const StateMixerSpec& spec, int64_t layer, Rank rank);
  // values [rows, channels of this rank] → act.attention. `inputs`: room for inputs_cols() columns.
  void forward(const Context& context, const StateRows& state, const Activations& act,
               Tensor values, Tensor inputs) const;
  int64_t inputs_cols() const { return inputs_->outputs(); }

 private:
  enum Part : size_t { kSteps, kKeys, kQueries };
  void add_norms(int64_t layer);

  const StateMixerSpec& spec_;
  Linear* inputs_;  // each rank has some of the values, and gets the sum of all
  std::vector<const Norm*> norms_;
  Linear* steps_;
  const Param* log_rates_;
  const Param* skip_;
};

}  // namespace sluice
