// The speed at which ranks exchange rows, measured where a run on several begins: plan predicts
// with it how fast others are.
#pragma once

#include "src/nn/group.h"

namespace sluice {

struct ExchangeSpeed {
  double messages_per_second = 0;  // of few bytes, one after another
  double bytes_per_second = 0;     // from a rank to the others
};

// Measures gathers of few bytes, and of as many as a decode step's rows have. All ranks call it,
// and wait up to some 40 ms, longer where a gather takes more than 6 ms.
ExchangeSpeed measure_exchange(const Group& group);

}  // namespace sluice
