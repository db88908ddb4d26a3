// The responses that a file has already.
#pragma once

#include <cstdint>
#include <functional>

#include "io/input_file.h"
#include "src/serve/batch/batch_file.h"

namespace sluice {

// Calls `visit` with the id of each response in the first `size` bytes of a file, which are whole
// lines; they are read as a stream, however long they are. Error(refused) for what is no response,
// and for one with a text of more than `longest_text` bytes.
void read_response_ids(const io::InputFile& file, uint64_t size, uint64_t longest_text,
                       const std::function<void(const Digest&)>& visit);

}  // namespace sluice
