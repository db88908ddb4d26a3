// Runs on several ranks: of a launcher that has started them, or of --tensor-parallel-size and
// --pipeline-parallel-size, for which mpirun is started.
#pragma once

#include <functional>
#include <stop_token>

#include "src/cli/common.h"
#include "src/cli/signals.h"

namespace sluice::cli {

// Thrown where this process has to start so many ranks of itself instead of working.
struct StartRanks {
  int ranks = 0;
};

// Returns the number of ranks that options ask for.
int asked_ranks(const CommonOptions& options);

// Does a verb's work on rank 0, or on one rank alone: `lead`. If a launcher has started several
// ranks, joins them before, so that `options` has their group; the others follow rank 0 to its end,
// without results or messages. `needs_head`: as the verb's planner has it. Throws StartRanks where
// ranks are asked for and not there.
void on_ranks(CommonOptions& options, const std::stop_token& stop, bool needs_head,
              const std::function<void()>& lead);

// Starts the ranks on this host with the same arguments and waits for them; returns their exit
// status. Error(usage) where mpirun is not in PATH.
int start_ranks(const StartRanks& start, int argc, char** argv, const SignalWatch& signals);

}  // namespace sluice::cli
