// The summary after a run, and of a report: the load, the speed, the memory.
#pragma once

#include <string>

#include "src/base/json.h"

namespace sluice::cli {

// Several lines. `where` names the report in errors: it may come from a file. Error(refused) for
// what is not as docs/formats.md says.
std::string summary_text(const Json& report, const std::string& where = "report");

}  // namespace sluice::cli
