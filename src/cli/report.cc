// sluice report: what --report wrote, as a summary, a page or a trace; or two of them compared.
#include <filesystem>

#include "io/file.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/cli/common.h"
#include "src/cli/report/report_compare.h"
#include "src/cli/report/report_html.h"
#include "src/cli/report/report_summary.h"
#include "src/cli/report/report_trace.h"
#include "src/cli/verbs.h"

namespace sluice::cli {
namespace {

constexpr uint64_t kMaxReportBytes = 256 * MiB;

struct ReportOptions {
  std::string file;
  std::optional<std::string> other;
  std::optional<std::string> html;
  std::optional<std::string> trace;
  double threshold = 5;
  std::optional<double> threshold_memory;
  std::optional<double> threshold_speed;
  bool json = false;
};

Json read_report(const std::string& file) {
  Json report = parse_json(io::read_small_file(file, kMaxReportBytes), file);
  JsonFields fields(report, file);
  if (fields.string_or("schema", "") != "sluice.report/1") {
    fail(ErrorKind::refused,
         "{}: is not a report that this version of sluice reads (schema sluice.report/1)", file);
  }
  return report;
}

void check_output(const char* option, const std::string& path, const std::string& report) {
  std::error_code none;  // what is not there is not the same
  if (std::filesystem::equivalent(path, report, none))
    fail(ErrorKind::usage, "{} {}: is the report itself", option, path);
}

void check_options(const ReportOptions& o, bool threshold_given) {
  if (o.other && (o.html || o.trace))
    fail(ErrorKind::usage, "--html and --trace show one report; give them without {}", *o.other);
  if (!o.other && threshold_given)
    fail(ErrorKind::usage, "a threshold compares two reports; give a second one");
  for (double percent :
       {o.threshold, o.threshold_memory.value_or(0), o.threshold_speed.value_or(0)})
    if (!(percent >= 0))  // NaN, too
      fail(ErrorKind::usage, "a threshold must be a percentage of at least 0, or inf for never");
  if (o.html) check_output("--html", *o.html, o.file);
  if (o.trace) check_output("--trace", *o.trace, o.file);
  auto normal = [](const std::string& path) {
    return std::filesystem::path(path).lexically_normal();
  };
  if (o.html && o.trace && normal(*o.html) == normal(*o.trace))
    fail(ErrorKind::usage, "--html and --trace cannot be the same file");
}

void show(const ReportOptions& o, const std::stop_token& stop) {
  Json report = read_report(o.file);
  if (o.html || o.trace) {
    ReportData data = report_data(report, o.file);
    if (o.html) write_text(*o.html, report_html(data), "--html", stop);
    if (o.trace) write_text(*o.trace, report_trace(data), "--trace", stop);
    if (o.json) print_json(report);
    return;
  }
  if (o.json) {
    print_json(report);
    return;
  }
  ReportData data = report_data(report, o.file);
  print(fmt::format("{}\n{}\n",
                    io::printable(fmt::format("{} {} (quantization {})", data.verb, data.model,
                                              data.quantization)),
                    summary_text(report, o.file)));
}

void compare(const ReportOptions& o) {
  ReportData a = report_data(read_report(o.file), o.file);
  ReportData b = report_data(read_report(*o.other), *o.other);
  Thresholds thresholds{o.threshold_memory.value_or(o.threshold),
                        o.threshold_speed.value_or(o.threshold), o.threshold};
  Comparison comparison = compare_reports(a, b, thresholds);
  if (o.json) {
    print_json(comparison_json(comparison, a, b, thresholds));
  } else {
    print(comparison_text(comparison, a, b));
  }
  if (const FigureChange* worst = comparison.worst()) {
    fail(ErrorKind::runtime, "{} is worse than {}: {}, more than the threshold of {:g} %", *o.other,
         o.file, change_sentence(*worst), thresholds.of(figure_info(worst->figure).kind));
  }
}

}  // namespace

void define_report(CLI::App& app, std::stop_token stop) {
  auto o = std::make_shared<ReportOptions>();
  CLI::App* verb = app.add_subcommand("report", "Show a report of --report, or compare two");
  verb->footer(
      "With two reports the exit status is 1 when a figure of the second is worse by\n"
      "more than its threshold.\n"
      "Examples:\n"
      "  sluice run MODEL -p Hello --report r.json && sluice report r.json\n"
      "  sluice report r.json --html r.html --trace r.trace.json\n"
      "  sluice report before.json after.json --threshold-speed 30");
  verb->add_option("REPORT", o->file, "Show the report in this JSON file")->required();
  verb->add_option("OTHER", o->other, "Compare this report with the first");
  verb->add_flag("--json", o->json, "Print the whole object, or the comparison as one");
  verb->add_option("--html", o->html, "Write a page with charts and tables to this file")
      ->type_name("FILE");
  verb->add_option("--trace", o->trace,
                   "Write a trace for ui.perfetto.dev or chrome://tracing to this file")
      ->type_name("FILE");
  CLI::Option* all =
      verb->add_option("--threshold", o->threshold,
                       "Fail when a figure is worse by more than this [percent]; inf: never");
  CLI::Option* memory = verb->add_option("--threshold-memory", o->threshold_memory,
                                         "Use this threshold for memory and bytes read");
  CLI::Option* speed = verb->add_option("--threshold-speed", o->threshold_speed,
                                        "Use this threshold for seconds and rates");
  verb->callback([o, stop, all, memory, speed] {
    check_options(*o, all->count() + memory->count() + speed->count() > 0);
    if (o->other) {
      compare(*o);
    } else {
      show(*o, stop);
    }
  });
}

}  // namespace sluice::cli
