// What to do when a file cannot be read: another copy of it may be, and what is in the spill cache
// is in the checkpoint too.
#pragma once

#include "io/reader.h"
#include "io/sources.h"
#include "src/load/spill.h"

namespace sluice {

// True when there is another way to the same bytes, with a warning: the reader, which had the files
// of `sources` and behind them the spill's, is to be opened anew. `spill` may be null.
bool fall_back(const io::ReadError& error, io::Sources& sources, Spill* spill);

// The files of both, for a reader.
std::vector<io::CheckpointFile> files_to_read(const io::Sources& sources, const Spill* spill);

}  // namespace sluice
