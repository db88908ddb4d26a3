// The matrices between a decoder's layers and inside of them.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/kernels.h"
#include "src/base/tensor.h"
#include "src/models/decoder_spec.h"

namespace sluice {

// Experts that compute the rows of a layer: what the device chooses, and the lists that the host
// makes of it. In the memory of one of the two.
struct Routing {
  // For at most `rows` rows with `top_k` experts each.
  static uint64_t bytes(int64_t rows, int64_t top_k);
  Routing() = default;
  Routing(int64_t rows, int64_t top_k, std::byte* memory);

  ExpertChoices choices;
  int32_t* rows = nullptr;  // of the first expert that has any, then of the next
  float* weights = nullptr;
  int32_t* every_row = nullptr;

  // Work of `stream`; nothing where both are the same memory.
  void copy_choices(const Routing& to, int64_t count, DeviceStream& stream) const;
  void copy_lists(const Routing& to, int64_t count, int64_t rows, DeviceStream& stream) const;
};

// For at most `max_rows` rows, carved from one buffer. Matrices are float32.
class Activations {
 public:
  static uint64_t bytes(const DecoderSpec& spec, int64_t max_rows, Rank rank);
  // Bytes of host memory, where the device has memory of its own.
  static uint64_t host_bytes(const DecoderSpec& spec, int64_t max_rows);
  // `memory` has bytes(...) and `host` host_bytes(...), or nothing where the device's memory is the
  // host's. Both are 64-byte aligned.
  Activations(const DecoderSpec& spec, int64_t max_rows, Rank rank, std::span<std::byte> memory,
              std::span<std::byte> host = {});

  // The first `rows` rows of each. The residual stream:
  Tensor residual(int64_t rows) const { return residual_.rows_from(0, rows); }
  // Logits, then weights, of a branch's mix of streams; no columns where there is one stream.
  Tensor stream_weights(int64_t rows) const { return stream_weights_.rows_from(0, rows); }
  // The same memory for the output of a linear layer of so many outputs.
  Tensor wide_residual(int64_t rows, int64_t outputs) const;
  // A block's input, then its output, which is whole panels wide: the first hidden_size columns.
  Tensor normed(int64_t rows) const { return normed_.rows_from(0, rows); }
  // Input, then output, of a branch with another beside it; no columns where no layer has two.
  Tensor beside(int64_t rows) const { return beside_.rows_from(0, rows); }
  Tensor qkv(int64_t rows) const { return qkv_.rows_from(0, rows); }
  Tensor attention(int64_t rows) const { return attention_.rows_from(0, rows); }
  Tensor mlp(int64_t rows) const { return mlp_.rows_from(0, rows); }
  // All residual streams, where there are several; else no columns.
  Tensor altup(int64_t rows) const { return altup_.rows_from(0, rows); }
  // Inputs of single layers, beside the residual stream, and rows of their table; no columns where
  // layers have none.
  Tensor layer_inputs(int64_t rows) const { return layer_inputs_.rows_from(0, rows); }
  Tensor layer_rows(int64_t rows) const { return layer_rows_.rows_from(0, rows); }
  // An expert's input, then its output, and the sum of all, as wide as `normed`; no columns where
  // there are no experts.
  Tensor expert_rows(int64_t rows) const { return expert_rows_.rows_from(0, rows); }
  Tensor expert_sums(int64_t rows) const { return expert_sums_.rows_from(0, rows); }
  // The same of experts that read and make rows of another size.
  Tensor latent_rows(int64_t rows) const { return latent_rows_.rows_from(0, rows); }
  // The positions that a layer has chosen for each row; the layers behind it have the same.
  ChosenPositions chosen() const {
    return {reinterpret_cast<int32_t*>(chosen_.data), chosen_.cols};
  }
  // Rows that a layer, its output added, leaves to those behind it; some may have no columns.
  std::array<Tensor, 4> passed_on(int64_t rows) const {
    return {residual(rows), layer_inputs(rows), chosen_.rows_from(0, rows), altup(rows)};
  }
  const Routing& routing() const { return routing_; }
  const Routing& host_routing() const { return host_routing_; }
  int64_t max_rows() const { return residual_.rows; }
  // Activations of the CPU beside the device, in host memory, for rows that it multiplies
  // (HostSide); null: it does not. They outlive these.
  void set_host(const Activations* host) { host_ = host; }
  const Activations& host() const {
    check(host_ != nullptr, "activations of the CPU beside the device");
    return *host_;
  }

 private:
  Tensor residual_, stream_weights_, normed_, beside_, qkv_, attention_, mlp_, layer_inputs_,
      layer_rows_;
  Tensor expert_rows_, expert_sums_, latent_rows_, chosen_, altup_;
  Routing routing_, host_routing_;
  const Activations* host_ = nullptr;
};

}  // namespace sluice
