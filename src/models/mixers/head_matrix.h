// A matrix of each head, or group of heads, below one another in one tensor.
#pragma once

#include <string>

#include "src/models/mixers/mixer.h"

namespace sluice {

class HeadMatrix : public Module {
 public:
  struct Rows {
    std::string source;  // the tensor, without ".weight"
    Dimension all;       // rows of all matrices, whose unit is a matrix
    View view = {};
    int64_t inputs = 0;  // columns
  };
  HeadMatrix(std::string path, const Rows& rows, const MixerPlace& place);
  // Calls Kernels::multiply_heads, wherever the weight is.
  void multiply(const Kernels& kernels, Tensor x, int64_t x_step, HeadProduct product, Tensor y,
                int64_t y_step, int64_t tail = 0) const;

 private:
  int64_t rows_;   // of a matrix
  int64_t heads_;  // of this rank
  Param* weight_;
};

}  // namespace sluice
