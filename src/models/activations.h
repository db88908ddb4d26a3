// The matrices between a decoder's layers and inside of them.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "src/base/tensor.h"
#include "src/models/decoder_spec.h"

namespace sluice {

// For at most `max_rows` rows, carved from one buffer. All float32.
class Activations {
 public:
  static uint64_t bytes(const DecoderSpec& spec, int64_t max_rows, Rank rank);
  // `memory` has bytes(...) and is 64-byte aligned.
  Activations(const DecoderSpec& spec, int64_t max_rows, Rank rank, std::span<std::byte> memory);

  // The first `rows` rows of each. The residual stream:
  Tensor residual(int64_t rows) const { return residual_.rows_from(0, rows); }
  // A block's input, then its output, which is whole panels wide: the first hidden_size columns.
  Tensor normed(int64_t rows) const { return normed_.rows_from(0, rows); }
  // Input, then output, of a branch with another beside it; no columns where no layer has two.
  Tensor beside(int64_t rows) const { return beside_.rows_from(0, rows); }
  Tensor qkv(int64_t rows) const { return qkv_.rows_from(0, rows); }
  Tensor attention(int64_t rows) const { return attention_.rows_from(0, rows); }
  Tensor mlp(int64_t rows) const { return mlp_.rows_from(0, rows); }
  // What each layer gets of each token beside the stream, and rows of its table; no columns where
  // layers get nothing.
  Tensor layer_inputs(int64_t rows) const { return layer_inputs_.rows_from(0, rows); }
  Tensor layer_rows(int64_t rows) const { return layer_rows_.rows_from(0, rows); }
  int64_t max_rows() const { return residual_.rows; }

 private:
  Tensor residual_, normed_, beside_, qkv_, attention_, mlp_, layer_inputs_, layer_rows_;
};

}  // namespace sluice
