// A report, as `report` reads it, and all that is made of it.
#include "src/cli/report/report_compare.h"
#include "src/cli/report/report_html.h"
#include "src/cli/report/report_summary.h"
#include "src/cli/report/report_trace.h"
#include "tests/fuzz/fuzz.h"

using namespace sluice;

FUZZ_TARGET(report) {
  std::string_view text = test::text_of(data, size);
  test::taken_or_refused([&] { cli::summary_text(parse_json(text, "input"), "input"); });
  return test::taken_or_refused([&] {
    cli::ReportData report = cli::report_data(parse_json(text, "input"), "input");
    cli::report_html(report);
    parse_json(cli::report_trace(report), "trace");
    cli::ReportData none;
    for (const auto& [a, b] : {std::pair{&report, &none}, {&none, &report}, {&report, &report}}) {
      cli::Comparison comparison = cli::compare_reports(*a, *b, {});
      cli::comparison_text(comparison, *a, *b);
      cli::comparison_json(comparison, *a, *b, {})
          .dump(-1, ' ', true, Json::error_handler_t::replace);
      if (const cli::FigureChange* worst = comparison.worst()) cli::change_sentence(*worst);
    }
  });
}
