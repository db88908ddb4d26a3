// Source of parameters that do not stay in memory: layers get them tile by tile, while they
// compute.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kernels.h"
#include "src/nn/context.h"
#include "src/nn/param.h"

namespace sluice {

// Some rows of a parameter, whole panels of them.
struct WeightTile {
  Weight weight;
  int64_t first_row = 0;
};

class WeightStream {
 public:
  virtual ~WeightStream() = default;

  // The tile that holds `row` of `param`. Waits until it is in the device's memory, where it stays
  // until the work is done that `stream` was given before the next call. Fast when calls follow the
  // order of a sweep (each streamed parameter in the order of the module tree, its rows upwards),
  // right in any order.
  virtual WeightTile tile(const Param& param, int64_t row, DeviceStream& stream) = 0;

  // Says whether the rest of this step wants tiles of a parameter that only some tokens use
  // (Param::used < 1), before the first tile of its layer's is wanted. A hint: without it, or where
  // it is wrong, tiles come later, and are the same.
  virtual void expect(const Param& /*param*/, bool /*is_wanted*/) {}

  // Returns whether a parameter that the step wants is there without a wait, as long as the step is
  // at its layer. Call it once expect() was called for all of the layer's.
  virtual bool is_at_hand(const Param& /*param*/) { return false; }

  // Rows of a step up to which the CPU beside the device multiplies the parameter where it lies,
  // which is Param::value; 0: it never does.
  virtual int64_t host_rows(const Param& /*param*/) const { return 0; }
  // The copy in host memory of a bias of such a parameter, which is in the device's; also of a part
  // of it. Null: there is none.
  virtual const float* host_vector(const float* /*on_device*/) const { return nullptr; }

  // Does the same as Kernels::embed, but reads only the requested rows. The ids are in host memory;
  // `out` is written to by `stream`.
  virtual void embed(const Param& table, std::span<const int32_t> ids, Tensor out,
                     DeviceStream& stream) = 0;
};

// Calls WeightStream::expect for a parameter or its parts, where they are streamed.
void expect(const Param& param, bool is_wanted);
// Returns whether the parameter, or all of its parts, are in memory or at hand.
bool is_at_hand(const Param& param);

// y = x w^T (+ bias), wherever w is. An output's sum does not depend on the tile that it lies in.
void multiply(const Context& context, Tensor x, const Param& w, const float* bias, Tensor y);

}  // namespace sluice
