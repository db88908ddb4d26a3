// The context in which layers compute: kernels, and a group of ranks.
#pragma once

#include "kernels/kernels.h"
#include "src/nn/group.h"

namespace sluice {

struct Context {
  const Kernels& kernels;
  const Group& group;
};

}  // namespace sluice
