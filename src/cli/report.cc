// sluice report: shows a report that --report wrote.
#include "io/file.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/cli/common.h"
#include "src/cli/verbs.h"

namespace sluice::cli {
namespace {

constexpr uint64_t kMaxReportBytes = 256 * MiB;

struct ReportOptions {
  std::string file;
  bool json = false;
};

void run(const ReportOptions& o) {
  Json report = parse_json(io::read_small_file(o.file, kMaxReportBytes), o.file);
  JsonFields fields(report, o.file);
  if (fields.string_or("schema", "") != "sluice.report/1") {
    fail(ErrorKind::refused,
         "{}: is not a report that this version of sluice reads (schema sluice.report/1)", o.file);
  }
  if (o.json) {
    print_json(report);
    return;
  }
  try {
    print(fmt::format("{} {} (quantization {})\n{}\n", report.at("verb").get<std::string>(),
                      report.at("model").get<std::string>(),
                      report.at("quantization").get<std::string>(), summary_text(report)));
  } catch (const Json::exception& e) {
    fail(ErrorKind::refused, "{}: is damaged: {}", o.file, e.what());
  }
}

}  // namespace

void define_report(CLI::App& app, std::stop_token) {
  auto o = std::make_shared<ReportOptions>();
  CLI::App* verb = app.add_subcommand("report", "Show a report that --report wrote");
  verb->footer("Example:\n  sluice run MODEL -p Hello --report r.json && sluice report r.json");
  verb->add_option("REPORT", o->file, "the JSON file")->required();
  verb->add_flag("--json", o->json, "print the whole object");
  verb->callback([o] { run(*o); });
}

}  // namespace sluice::cli
