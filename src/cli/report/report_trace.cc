#include "src/cli/report/report_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "src/cli/report/report_series.h"

namespace sluice::cli {
namespace {

constexpr int kProcess = 1;
// Slices that overlap must not share a thread.
constexpr int kPhases = 1;
constexpr int kStalls = 2;
constexpr double kShortestRate = 1e-3;  // seconds: rates over less say more of the clock

// Whole nanoseconds: more digits would be noise.
double microseconds(double seconds) { return std::round(seconds * 1e9) / 1e3; }

class TraceEvents {
 public:
  void add(Json event) {
    event["pid"] = kProcess;
    text_ += text_.empty() ? "\n" : ",\n";
    text_ += event.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  void name_track(const char* what, int thread, const std::string& name) {
    add({{"name", what}, {"ph", "M"}, {"ts", 0}, {"tid", thread}, {"args", {{"name", name}}}});
  }
  void counter(const std::string& name, double seconds, Json values) {
    add({{"name", name},
         {"ph", "C"},
         {"ts", microseconds(seconds)},
         {"tid", 0},
         {"args", std::move(values)}});
  }
  void slice(const std::string& name, int thread, double begin, double end, Json values) {
    add({{"name", name},
         {"ph", "X"},
         {"ts", microseconds(begin)},
         {"dur", microseconds(std::max(end - begin, 0.0))},
         {"tid", thread},
         {"args", std::move(values)}});
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void add_memory(const ReportData& report, TraceEvents& events) {
  for (size_t p = 0; p < kPlaces; ++p) {
    auto place = static_cast<Place>(p);
    std::string name =
        place == Place::host ? "memory" : fmt::format("{} memory", place_name(place));
    BytesByUse peaks = memory_series(report.memory, place, report.end, 1).peaks;
    each_memory_state(report.memory, place, [&](double seconds, const BytesByUse& bytes) {
      Json values = Json::object();
      for (size_t u = 0; u < kUses; ++u)
        if (peaks[u] > 0) values[std::string(use_name(static_cast<Use>(u)))] = bytes[u];
      events.counter(name, seconds, std::move(values));
      events.counter(name + " in all", seconds, {{"bytes", total_bytes(bytes)}});
    });
  }
}

void add_disk(const ReportData& report, TraceEvents& events) {
  std::vector<RateStep> rates = disk_rates(report.disk, kShortestRate);
  for (const RateStep& r : rates)
    events.counter("disk", r.begin, {{"GB/s", r.bytes_per_second / 1e9}});
  if (!rates.empty()) events.counter("disk", rates.back().end, {{"GB/s", 0.0}});
}

void add_phases(const ReportData& report, TraceEvents& events) {
  const std::vector<Ledger::Phase>& phases = report.memory.phases;
  if (phases.empty()) return;
  events.name_track("thread_name", kPhases, "phases");
  for (size_t i = 0; i < phases.size(); ++i) {
    double end = i + 1 < phases.size() ? phases[i + 1].seconds : report.end;
    events.slice(phases[i].name, kPhases, phases[i].seconds, end, Json::object());
  }
}

// The report has sums, not moments: one slice from the last phase's begin carries them all.
void add_stalls(const ReportData& report, TraceEvents& events) {
  if (report.units.empty()) return;
  Json units = Json::object();
  for (const UnitStalls& u : report.units) {
    units[u.name] = {{"bytes", u.bytes},
                     {"disk_seconds", u.disk},
                     {"compute_seconds", u.compute},
                     {"copy_seconds", u.copy}};
  }
  double begin = report.memory.phases.empty() ? 0 : report.memory.phases.back().seconds;
  events.name_track("thread_name", kStalls, "stalls by unit");
  events.slice("stalls by unit", kStalls, begin, report.end, std::move(units));
}

}  // namespace

std::string report_trace(const ReportData& report) {
  TraceEvents events;
  events.name_track("process_name", 0, fmt::format("sluice {} {}", report.verb, report.model));
  add_phases(report, events);
  add_stalls(report, events);
  add_memory(report, events);
  add_disk(report, events);
  Json about{{"verb", report.verb},
             {"model", report.model},
             {"quantization", report.quantization},
             {"budget", report.memory.budget},
             {"predicted_peak", report.memory.predicted_peak},
             {"measured_peak", report.memory.measured_peak}};
  return fmt::format("{{\"displayTimeUnit\":\"ms\",\"otherData\":{},\"traceEvents\":[{}\n]}}\n",
                     about.dump(-1, ' ', false, Json::error_handler_t::replace), events.text());
}

}  // namespace sluice::cli
