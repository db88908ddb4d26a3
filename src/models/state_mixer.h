// A mixer with a state: a causal convolution, and of most kinds a recurrence over what it gives.
#pragma once

#include <span>
#include <vector>

#include "kernels/kv_spec.h"
#include "src/models/activations.h"
#include "src/models/decoder_spec.h"
#include "src/models/selective_scan.h"
#include "src/nn/layers.h"

namespace sluice {

class StateMixer : public Module {
 public:
  // `spec` outlives it.
  StateMixer(const StateMixerSpec& spec, int64_t layer, int64_t hidden_size, Rank rank);
  // x [rows, hidden_size] → y, whole panels wide, which may begin where x does. `states`: as
  // kv_specs() has them; `groups`: a step's rows in each group of the KV cache.
  void forward(const Context& context, std::span<const KvRows> groups,
               std::span<const LayerKv> states, const Activations& act, Tensor x, Tensor y) const;
  // The convolution's last inputs, then the recurrence's state.
  std::vector<KvSpec> kv_specs() const;

 private:
  void add_convolution(int64_t layer, Rank rank);
  void add_recurrence(int64_t layer, Rank rank);
  size_t index(StatePart part) const;  // among the parts of the input
  Tensor part(Tensor all, StatePart part) const { return input_->part(all, index(part)); }
  Tensor convolved(Tensor all) const;  // the columns that the convolution takes
  void convolve(const Context& context, const StateRows& state, Tensor x) const;
  void recur(const Context& context, const StateRows& state, const Activations& act, Tensor all,
             Tensor out) const;
  void add_norm(int64_t layer, Rank rank);
  // `sums`: room for a number a row and part of the norm.
  const float* squares(const Context& context, Tensor sums, Tensor out) const;
  void gate(const Context& context, Tensor gate, Tensor sums, Tensor out) const;
  void normalize(const Context& context, Tensor sums, Tensor out) const;

  const StateMixerSpec& spec_;
  int64_t heads_;  // of this rank
  Linear* input_;
  const Param* weight_;  // of the convolution
  const Param* bias_ = nullptr;
  const Param* log_rates_ = nullptr;
  const Param* step_bias_ = nullptr;
  const Param* skip_ = nullptr;
  const SelectiveScan* selective_ = nullptr;  // in the place of these three
  const Norm* unit_ = nullptr;                // gives queries and keys of the delta rule one length
  const Param* norm_ = nullptr;
  Linear* output_;
};

}  // namespace sluice
