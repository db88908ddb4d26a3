// An input-major matrix of grouped codes, written row by row.
#pragma once

#include <cstdint>
#include <span>
#include <stop_token>

#include "io/checkpoint/index.h"
#include "src/formats/stored_format.h"
#include "src/load/summed_output.h"

namespace sluice {

// All outputs of `matrix` with all inputs, in the form of quant/grouped_rows.h, into `to` from
// `offset` on. `memory` is scratch. Error(no_fit) where that has no room for 32 rows,
// Error(runtime) where `stop` is requested or a file cannot be read.
void copy_by_rows(const io::CheckpointIndex& index, const StoredMatrix& matrix, int64_t inputs,
                  SummedOutput& to, uint64_t offset, std::span<std::byte> memory,
                  const std::stop_token& stop);

}  // namespace sluice
