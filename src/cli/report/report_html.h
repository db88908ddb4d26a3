// A report as one page for people: no scripts, nothing from the network, light and dark.
#pragma once

#include <string>

#include "src/cli/report/report_data.h"

namespace sluice::cli {

// A whole document, well-formed as XML too. Sections for which the report has no data are left out.
std::string report_html(const ReportData& report);

}  // namespace sluice::cli
