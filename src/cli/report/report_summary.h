// The summary after a run, and of a report: the load, the speed, the memory.
#pragma once

#include <string>

#include "src/base/json.h"
#include "src/memory/report.h"

namespace sluice::cli {

// The largest errors of quantized tensors.
struct QuantizationErrors {
  size_t tensors = 0;
  double worst_rms = 0;  // relative
  double worst_error = 0;
  std::string worst_name;  // of the tensor with worst_rms

  void add(const std::string& name, double relative_rms, double error);
};

// Several lines. `where` names the report in errors: it may come from a file. Error(refused) for
// what is not as docs/formats.md says.
std::string summary_text(const Json& report, const std::string& where = "report");
// Returns the summary of a report that is given in parts: `sections` has those that are no lists.
std::string summary_text(const Json& sections, const QuantizationErrors& errors,
                         const MemoryReport& memory, const std::string& where);

}  // namespace sluice::cli
