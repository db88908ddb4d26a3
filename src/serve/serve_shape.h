// Memory that a server plans for sequences, whose number and lengths nobody knows.
#pragma once

#include <cstdint>

#include "src/engine/planner.h"
#include "src/serve/batch/batch_width.h"

namespace sluice {

struct ServeShape {
  int64_t max_model_len = 0;  // tokens of the longest sequence
  BatchWidth width;           // with the shape to place the model with
};

// For at most `max_num_seqs` sequences at once: one of the longest, the others of a usual length.
// `max_model_len`: of the longest; 0: as long as the model allows, is usual, and takes a quarter of
// the budget at most. `request_bytes`: what the caller leases for requests. Error(no_fit).
ServeShape choose_serve_shape(Planner& planner, int64_t max_model_len, int64_t max_num_seqs,
                              uint64_t request_bytes);

}  // namespace sluice
