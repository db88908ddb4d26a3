// A report as a trace that ui.perfetto.dev and chrome://tracing open: the trace event format.
#pragma once

#include <string>

#include "src/cli/report/report_data.h"

namespace sluice::cli {

// Counters for memory by use and for the disk's rate, a slice for each phase, and the stalls of the
// units beside them. Times are microseconds since the start of the run.
std::string report_trace(const ReportData& report);

}  // namespace sluice::cli
