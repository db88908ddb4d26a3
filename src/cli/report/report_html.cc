#include "src/cli/report/report_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <span>
#include <vector>

#include "src/base/units.h"
#include "src/cli/report/report_chart.h"
#include "src/cli/report/report_series.h"

namespace sluice::cli {
namespace {

constexpr size_t kMemoryBins = 480;
constexpr size_t kRateSteps = 240;
constexpr size_t kTensorRows = 20;
constexpr size_t kUnitRows = 60;
constexpr size_t kHolderRows = 30;

// From the bottom up: what is there all the time lies below what comes and goes.
constexpr std::array<Use, kUses> kStack{Use::runtime,     Use::weights,   Use::kv_cache,
                                        Use::activations, Use::workspace, Use::staging,
                                        Use::swap};

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --page: #fcfcfb; --ink: #16161a; --faint: #63636b; --line: #dcdcd8;
  --runtime: #a3a39c; --weights: #2a78d6; --kv_cache: #1baf7a; --activations: #eda100;
  --workspace: #4a3aa7; --staging: #eb6834; --swap: #e87ba4; --disk: #2a78d6; --level: #c22f2e; }
@media (prefers-color-scheme: dark) {
  :root { --page: #1a1a19; --ink: #f0f0ec; --faint: #a5a5a0; --line: #3a3a38; --runtime: #6f6f69;
    --weights: #3987e5; --kv_cache: #199e70; --activations: #c98500; --workspace: #9085e9;
    --staging: #d95926; --swap: #d55181; --disk: #3987e5; --level: #e66767; } }
body { background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  max-width: 980px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2.2rem 0 .4rem; }
p { color: var(--faint); margin: .2rem 0 .6rem; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: .9rem;
  margin: 1.4rem 0; }
dt { color: var(--faint); font-size: .85rem; }
dd { margin: 0; font-size: 1.2rem; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th { text-align: left; font-weight: 600; color: var(--faint); }
th, td { padding: .22rem .8rem .22rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--faint); }
svg .mark { fill: var(--ink); stroke: var(--page); stroke-width: 3px; paint-order: stroke; }
svg .grid { stroke: var(--line); }
svg .axis, svg .moment { stroke: var(--faint); }
svg .moment { stroke-dasharray: 1 3; }
svg .level { stroke: var(--level); stroke-width: 1.5; stroke-dasharray: 7 4; }
svg .layer { stroke: var(--page); stroke-width: .6; }
.swatch { display: inline-block; width: .8em; height: .8em; margin-right: .5em; border-radius: 2px; }
)";

std::string style() {
  std::string css(kStyle);
  std::vector<std::string_view> names{"disk"};
  for (Use use : kStack) names.push_back(use_name(use));
  for (std::string_view name : names)
    css += fmt::format(".{} {{ fill: var(--{}); background: var(--{}); }}\n", name, name, name);
  return css;
}

struct Cell {
  std::string html = {};
  bool number = false;
  std::string title = {};  // the exact value, where the cell rounds
};

Cell text_cell(std::string_view text) { return {html_text(text)}; }
Cell bytes_cell(uint64_t bytes) {
  return {format_size(bytes), true, fmt::format("{} bytes", bytes)};
}
Cell seconds_cell(double seconds) { return {fmt::format("{:.3f} s", seconds), true}; }

struct Table {
  struct Head {
    std::string text;
    bool number = false;
  };
  std::vector<Head> heads;
  std::vector<std::vector<Cell>> rows;
};

std::string table_html(const Table& table) {
  std::string html = "<table>\n<thead><tr>";
  for (const Table::Head& h : table.heads)
    html += fmt::format("<th{}>{}</th>", h.number ? " class=\"number\"" : "", html_text(h.text));
  html += "</tr></thead>\n<tbody>\n";
  for (const std::vector<Cell>& row : table.rows) {
    html += "<tr>";
    for (const Cell& c : row) {
      html += fmt::format("<td{}{}>{}</td>", c.number ? " class=\"number\"" : "",
                          c.title.empty() ? "" : fmt::format(" title=\"{}\"", html_text(c.title)),
                          c.html);
    }
    html += "</tr>\n";
  }
  return html + "</tbody>\n</table>\n";
}

std::string section(std::string_view title, std::string_view note, const std::string& body) {
  if (body.empty()) return {};
  return fmt::format("<section>\n<h2>{}</h2>\n<p>{}</p>\n{}</section>\n", html_text(title),
                     html_text(note), body);
}

std::string title_of(const ReportData& report) {
  return fmt::format("sluice {}: {}, quantization {}", report.verb, report.model,
                     report.quantization);
}

std::string key_figures(const ReportData& report) {
  std::string html = "<dl>\n";
  auto add = [&](std::string_view label, const std::string& value) {
    html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", html_text(label), html_text(value));
  };
  add("budget", format_size(report.memory.budget));
  for (size_t i = 0; i < kFigures; ++i) {
    auto figure = static_cast<Figure>(i);
    if (auto value = report.figure(figure))
      add(figure_info(figure).label, figure_text(figure, *value));
  }
  return html + "</dl>\n";
}

std::vector<ChartMark> phase_marks(const ReportData& report) {
  std::vector<ChartMark> marks;
  marks.reserve(report.memory.phases.size());
  for (const Ledger::Phase& p : report.memory.phases) marks.push_back({p.seconds, p.name});
  return marks;
}

Chart memory_chart(const ReportData& report, Place place, const MemorySeries& series) {
  Chart chart;
  chart.description =
      fmt::format("Memory by use over time; at the peak {}", format_size(series.peak()));
  chart.end = chart.last_end = report.end;
  chart.moments = phase_marks(report);
  for (const MemoryStep& s : series.steps) chart.begins.push_back(s.seconds);
  for (Use use : kStack) {
    auto u = static_cast<size_t>(use);
    if (series.peaks[u] == 0) continue;
    ChartLayer& layer = chart.layers.emplace_back();
    layer.css_class = use_name(use);
    layer.tooltip = fmt::format("{}: at most {}", use_name(use), format_size(series.peaks[u]));
    for (const MemoryStep& s : series.steps)
      layer.heights.push_back(static_cast<double>(s.bytes[u]));
  }
  if (place == Place::host) {
    const MemoryReport& m = report.memory;
    chart.levels = {
        {static_cast<double>(m.budget), "budget " + format_size(m.budget)},
        {static_cast<double>(m.predicted_peak), "predicted peak " + format_size(m.predicted_peak)}};
  }
  return chart;
}

std::string memory_legend(const MemorySeries& series) {
  Table table{{{"use"}, {"at most", true}, {"at the peak", true}}, {}};
  for (size_t i = kUses; i > 0; --i) {  // as the layers lie
    Use use = kStack[i - 1];
    auto u = static_cast<size_t>(use);
    if (series.peaks[u] == 0) continue;
    table.rows.push_back(
        {{fmt::format("<span class=\"swatch {}\"></span>{}", use_name(use), use_name(use))},
         bytes_cell(series.peaks[u]),
         bytes_cell(series.at_peak[u])});
  }
  table.rows.push_back({text_cell("all"), {}, bytes_cell(series.peak())});
  return table_html(table);
}

std::string memory_sections(const ReportData& report) {
  std::string html;
  for (size_t p = 0; p < kPlaces; ++p) {
    auto place = static_cast<Place>(p);
    MemorySeries series = memory_series(report.memory, place, report.end, kMemoryBins);
    std::string chart = chart_svg(memory_chart(report, place, series));
    if (chart.empty()) continue;
    html += section(place == Place::host ? std::string("Memory over time")
                                         : fmt::format("Memory over time: {}", place_name(place)),
                    "What the ledger leased, by use. Point at an area for its name.",
                    chart + memory_legend(series));
  }
  return html;
}

std::string disk_section(const ReportData& report) {
  std::vector<RateStep> rates =
      disk_rates(report.disk, report.end / static_cast<double>(kRateSteps));
  if (rates.empty()) return {};
  Chart chart;
  chart.description = "Bytes a second read from the disk over time";
  chart.quantity = Quantity::bytes_per_second;
  chart.end = report.end;
  chart.last_end = rates.back().end;
  chart.moments = phase_marks(report);
  ChartLayer& layer = chart.layers.emplace_back();
  layer.css_class = "disk";
  for (const RateStep& r : rates) {
    chart.begins.push_back(r.begin);
    layer.heights.push_back(r.bytes_per_second);
  }
  uint64_t bytes = report.disk.back().bytes - report.disk.front().bytes;
  double seconds = rates.back().end - rates.front().begin;
  layer.tooltip = fmt::format("{} in {:.3f} s: {:.3g} GB/s on average", format_size(bytes), seconds,
                              static_cast<double>(bytes) / seconds / 1e9);
  return section("Disk throughput", layer.tooltip, chart_svg(chart));
}

std::string more_text(size_t left_out) {
  return left_out == 0 ? "" : fmt::format(" {} more are not shown.", left_out);
}

std::vector<Cell> stall_row(const UnitStalls& u) {
  return {text_cell(u.name), bytes_cell(u.bytes), seconds_cell(u.disk), seconds_cell(u.compute),
          seconds_cell(u.copy)};
}

std::string stall_section(const ReportData& report) {
  if (report.units.empty()) return {};
  std::vector<UnitStalls> units = report.units;
  std::ranges::stable_sort(units, std::greater{}, &UnitStalls::total);
  UnitStalls all;
  all.name = "all units";
  for (const UnitStalls& u : units) {
    all.bytes += u.bytes;
    all.disk += u.disk;
    all.compute += u.compute;
    all.copy += u.copy;
  }
  size_t shown = std::min(units.size(), kUnitRows);
  Table table{{{"unit"},
               {"read", true},
               {"compute waited for the disk", true},
               {"the disk waited for compute", true},
               {"encoding and copying", true}},
              {stall_row(all)}};
  for (const UnitStalls& u : std::span(units).first(shown)) table.rows.push_back(stall_row(u));
  return section(
      "Stalls by unit",
      "Seconds in which one side waited, longest first." + more_text(units.size() - shown),
      table_html(table));
}

std::string quantization_section(const ReportData& report) {
  if (report.quantized.empty()) return {};
  size_t shown = std::min(report.quantized.size(), kTensorRows);
  Table table{{{"tensor"},
               {"stored as"},
               {"kept as"},
               {"relative RMS error", true},
               {"largest error", true}},
              {}};
  for (const QuantizedTensor& t : std::span(report.quantized).first(shown)) {
    table.rows.push_back({text_cell(t.name),
                          text_cell(t.stored),
                          text_cell(t.kept),
                          {fmt::format("{:.4f}", t.relative_rms_error), true},
                          {fmt::format("{:.3g}", t.max_error), true}});
  }
  return section("Quantization error",
                 fmt::format("Of {} quantized tensors, the worst first.{}", report.quantized.size(),
                             more_text(report.quantized.size() - shown)),
                 table_html(table));
}

std::string holder_section(const ReportData& report) {
  const std::vector<Ledger::Account>& holders = report.memory.peak_holders;
  if (holders.empty()) return {};
  size_t shown = std::min(holders.size(), kHolderRows);
  Table table{{{"owner"}, {"use"}, {"bytes", true}}, {}};
  for (const Ledger::Account& a : std::span(holders).first(shown))
    table.rows.push_back({text_cell(a.owner), text_cell(use_name(a.use)), bytes_cell(a.bytes)});
  return section("Who held memory at the peak",
                 "The largest first." + more_text(holders.size() - shown), table_html(table));
}

}  // namespace

std::string report_html(const ReportData& report) {
  std::string title = html_text(title_of(report));
  // The policy holds the page to its word: nothing is loaded, nothing runs.
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src &#39;none&#39;; "
      "style-src &#39;unsafe-inline&#39;\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n<h1>{}</h1>\n<p>{}</p>\n"
      "{}{}{}{}{}{}</body>\n</html>\n",
      title, style(), title, html_text(fmt::format("{}, {}", report.architecture, report.reader)),
      key_figures(report), memory_sections(report), disk_section(report), stall_section(report),
      quantization_section(report), holder_section(report));
}

}  // namespace sluice::cli
