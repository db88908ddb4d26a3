// The parts that mixers with a state share: products of their input, a causal
// convolution of some of them, a number for each head, and the output.
#pragma once

#include <span>
#include <vector>

#include "src/models/mixers/mixer.h"

namespace sluice {

class StateMixer : public Mixer {
 protected:
  StateMixer(const std::string& name, const MixerPlace& place);
  void add_input(const LinearSpec& spec, std::span<const Dimension> parts);
  // `of`: the dimensions of what it takes.
  void add_convolution(const ConvolutionSpec& spec, std::span<const Dimension> of);
  // A vector with some numbers for each head; null for no name.
  const Param* add_of_heads(const std::string& source, const Dimension& heads, int64_t each = 1);
  void add_output(const LinearSpec& spec, const Dimension& heads);

  // The products of the input.
  Tensor project(const Context& context, const Activations& act, const RowsIn& from) const;
  Tensor part(Tensor all, size_t index) const { return input_->part(all, index); }
  // Columns behind the products of the input.
  Tensor behind(const Activations& act, int64_t rows, int64_t columns) const {
    return act.qkv(rows).columns(input_->outputs(), columns);
  }
  void convolve(const Context& context, const StateRows& state, Tensor x) const;
  KvSpec convolution_state(int64_t columns) const;
  void write(const Context& context, Tensor out, const RowsOut& to) const {
    output_->forward(context, out, to);
  }
  // The rows of a state, the first (a convolution's) or the second.
  static StateRows state_rows(const MixerStep& step, size_t state);

  const MixerPlace place_;
  const Linear& input() const { return *input_; }

 private:
  Linear* input_ = nullptr;
  const ConvolutionSpec* convolution_ = nullptr;
  const Param* weight_ = nullptr;  // of the convolution
  const Param* bias_ = nullptr;
  Linear* output_ = nullptr;
};

}  // namespace sluice
