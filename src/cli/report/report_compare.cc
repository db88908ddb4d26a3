#include "src/cli/report/report_compare.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "io/file.h"

namespace sluice::cli {
namespace {

FigureChange change_of(Figure figure, const ReportData& a, const ReportData& b,
                       const Thresholds& thresholds) {
  FigureChange c;
  c.figure = figure;
  c.a = a.figure(figure);
  c.b = b.figure(figure);
  if (!c.a || !c.b) return c;
  if (*c.a > 0) c.percent = 100 * (*c.b - *c.a) / *c.a;
  const FigureInfo& info = figure_info(figure);
  double better = info.less_is_worse ? *c.b : *c.a;
  double worse = info.less_is_worse ? *c.a : *c.b;
  if (worse > better)
    c.worse = better > 0 ? worse / better : std::numeric_limits<double>::infinity();
  if (info.kind == FigureKind::none || c.worse <= 1) return c;
  // Growth from nothing exceeds every threshold; a hair above one is a rounding error.
  double percent = c.percent ? std::abs(*c.percent) : std::numeric_limits<double>::infinity();
  c.regression = percent > thresholds.of(info.kind) + 1e-9;
  return c;
}

std::string value_text(Figure figure, std::optional<double> value) {
  return value ? figure_text(figure, *value) : "missing";
}

std::string percent_text(const FigureChange& c) {
  return c.percent ? fmt::format("{:+.1f} %", *c.percent) : "";
}

Json value_json(Figure figure, std::optional<double> value) {
  if (!value) return {};
  if (figure_info(figure).unit == FigureUnit::bytes) return static_cast<uint64_t>(*value);
  return *value;
}

std::string subject_text(const ReportData& r) {
  return io::printable(fmt::format("{} {} (quantization {})", r.verb, r.model, r.quantization));
}

Json subject_json(const ReportData& r) {
  return {{"verb", r.verb}, {"model", r.model}, {"quantization", r.quantization}};
}

}  // namespace

double Thresholds::of(FigureKind kind) const {
  return kind == FigureKind::memory ? memory : kind == FigureKind::speed ? speed : error;
}

const FigureChange* Comparison::worst() const {
  const FigureChange* worst = nullptr;
  for (const FigureChange& c : changes)
    if (c.regression && (worst == nullptr || c.worse > worst->worse)) worst = &c;
  return worst;
}

Comparison compare_reports(const ReportData& a, const ReportData& b, const Thresholds& thresholds) {
  Comparison comparison;
  for (size_t i = 0; i < kFigures; ++i) {
    FigureChange c = change_of(static_cast<Figure>(i), a, b, thresholds);
    if (c.a || c.b) comparison.changes.push_back(c);
  }
  return comparison;
}

std::string comparison_text(const Comparison& comparison, const ReportData& a,
                            const ReportData& b) {
  std::string text = fmt::format("A  {}\nB  {}\n\n{:<26} {:>16} {:>16} {:>10}\n", subject_text(a),
                                 subject_text(b), "", "A", "B", "change");
  for (const FigureChange& c : comparison.changes) {
    text += fmt::format("{:<26} {:>16} {:>16} {:>10}{}\n", figure_info(c.figure).label,
                        value_text(c.figure, c.a), value_text(c.figure, c.b), percent_text(c),
                        c.regression ? "  regression" : "");
  }
  return text;
}

Json comparison_json(const Comparison& comparison, const ReportData& a, const ReportData& b,
                     const Thresholds& thresholds) {
  Json figures = Json::object();
  Json regressions = Json::array();
  for (const FigureChange& c : comparison.changes) {
    const FigureInfo& info = figure_info(c.figure);
    std::string name(info.name);
    figures[name] = {{"a", value_json(c.figure, c.a)},
                     {"b", value_json(c.figure, c.b)},
                     {"change_percent", c.percent ? Json(*c.percent) : Json()},
                     {"judged", info.kind != FigureKind::none},
                     {"regression", c.regression}};
    if (c.regression) regressions.push_back(name);
  }
  return {
      {"a", subject_json(a)},
      {"b", subject_json(b)},
      {"thresholds",
       {{"memory", thresholds.memory}, {"speed", thresholds.speed}, {"error", thresholds.error}}},
      {"figures", figures},
      {"regressions", regressions}};
}

std::string change_sentence(const FigureChange& c) {
  std::string percent = percent_text(c);
  return fmt::format("{} {} from {} to {}{}", figure_info(c.figure).label,
                     figure_info(c.figure).less_is_worse ? "fell" : "grew",
                     value_text(c.figure, c.a), value_text(c.figure, c.b),
                     percent.empty() ? "" : fmt::format(" ({})", percent));
}

}  // namespace sluice::cli
