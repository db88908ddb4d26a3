// What to do when a file cannot be read: another copy of it may be, and what is in the spill cache
// is in the checkpoint too.
#pragma once

#include "io/reader.h"
#include "io/sources.h"
#include "src/load/spill.h"

namespace sluice {

// True when there is another way to the same bytes, with a warning: the reader, which had the files
// of `sources`, is to be opened anew. `spill`, whose files are the extra one's copies, may be null.
bool fall_back(const io::ReadError& error, io::Sources& sources, Spill* spill);

// Makes the spill's copies, if it is ready, the extra file of `sources`; true if it is.
bool offer_spill(const Spill* spill, io::Sources& sources);

}  // namespace sluice
