// Two reports side by side: what changed, and what became worse by more than is allowed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/cli/report/report_data.h"

namespace sluice::cli {

// Percent by which a figure may become worse.
struct Thresholds {
  double memory = 5;
  double speed = 5;
  double error = 5;
  double of(FigureKind kind) const;
};

struct FigureChange {
  Figure figure{};
  std::optional<double> a;
  std::optional<double> b;
  std::optional<double> percent;  // from a to b; none where one is missing or a is zero
  double worse = 1;               // how many times as bad b is; infinite where a is zero
  bool regression = false;
};

struct Comparison {
  std::vector<FigureChange> changes;  // figures that at least one report has
  // The regression that is the largest factor.
  const FigureChange* worst() const;
};

Comparison compare_reports(const ReportData& a, const ReportData& b, const Thresholds& thresholds);

// For people: who is compared, then a line each.
std::string comparison_text(const Comparison& comparison, const ReportData& a, const ReportData& b);
Json comparison_json(const Comparison& comparison, const ReportData& a, const ReportData& b,
                     const Thresholds& thresholds);
// "measured peak grew from 17.4 MiB to 20.1 MiB (+15.5 %)".
std::string change_sentence(const FigureChange& change);

}  // namespace sluice::cli
