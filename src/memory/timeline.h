// A ledger's timeline of bounded length: how events become fewer, so that a process that runs for
// weeks keeps its report small and its peaks exact.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "src/memory/ledger.h"

namespace sluice {

// Merges events into the states at the ends of equal parts of time, `parts` for each phase (and for
// the time before the first). A state is written as what each account took or gave back since the
// state before it: what was given back first, so that no sum on the way exceeds those of the
// states. Kept beside them are the states where the bytes of a place are largest in a part, and
// where those of a place's use are largest in a phase. Times stay those of the last event of each
// state. `accounts`: that the events index; `phases`: in the order of time.
void thin_timeline(std::vector<Ledger::Event>& events, std::span<const Ledger::Account> accounts,
                   std::span<const Ledger::Phase> phases, size_t parts);

}  // namespace sluice
