// The report of a run, made at its end: --report has the whole, --json and the log have parts.
// Schema: docs/formats.md.
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "src/cli/common.h"

namespace sluice::cli {

class RunReport {
 public:
  // Takes down what the model would forget when it gives up its weights; it is not measured yet.
  // `timings` may be any object.
  RunReport(std::string verb, const CommonOptions& options, LoadedModel& model, Json timings);

  // Writes the whole to --report, where that is given.
  void save(const std::stop_token& stop);
  // Measured by the first call, which comes after everything that takes memory.
  const MemoryReport& memory();
  const Json& scheduler() const { return scheduler_; }
  const Json& timings() const { return timings_; }
  // For people: src/cli/report/report_summary.h.
  std::string summary();

 private:
  bool is_written() const { return options_.json || !options_.report.empty(); }
  void write(JsonWriter& json) const;
  Json load_figures() const;
  Json ranks() const;
  Json stream_figures() const;
  void write_tensors(JsonWriter& json) const;
  void write_units(JsonWriter& json) const;

  std::string verb_;
  const CommonOptions& options_;
  LoadedModel& model_;
  Json timings_;
  Json scheduler_;
  Json spill_;
  std::optional<StreamReport> stream_;
  std::vector<RankShare> ranks_;
  std::vector<DiskTimeline::Sample> samples_;
  std::optional<MemoryReport> memory_;
};

}  // namespace sluice::cli
