#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/cli/help.h"
#include "src/cli/output.h"
#include "src/cli/signals.h"
#include "src/cli/verbs.h"
#include "src/cli/version.h"

namespace sluice::cli {
namespace {

int report_error(ErrorKind kind, std::string_view what) {
  log::show(fmt::format("sluice: {}\n", one_line(what)));
  return static_cast<int>(kind);
}

// The library only says that a subcommand is missing.
void refuse_unknown_verb(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_name() == argv[1]) return;
    if (!verb->get_group().empty()) verbs.push_back(verb->get_name());
  }
  fail(ErrorKind::usage, "{} is no verb of this version; these are: {}", argv[1],
       fmt::join(verbs, ", "));
}

void run_verb(CLI::App& app, int argc, char** argv) {
  refuse_unknown_verb(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    std::ostringstream text;
    app.exit(e, text, text);
    print(text.str());
  }
}

int dispatch(CLI::App& app, int argc, char** argv) {
  try {
    if (argc < 2) {
      log::show(short_help(app));
      fail(ErrorKind::usage, "give a verb; sluice VERB --help says what it takes");
    }
    run_verb(app, argc, argv);
    return 0;
  } catch (const CLI::ParseError& e) {
    auto given = app.get_subcommands();
    return report_error(ErrorKind::usage,
                        fmt::format("{} (see sluice{} --help)", e.what(),
                                    given.empty() ? "" : " " + given.front()->get_name()));
  } catch (const Error& e) {
    return report_error(e.kind(), e.what());
  } catch (const std::bad_alloc&) {
    return report_error(ErrorKind::no_fit,
                        "the system has no memory left; close other programs or lower --memory");
  } catch (const std::exception& e) {
    return report_error(ErrorKind::runtime, e.what());
  }
}

int run_main(int argc, char** argv) {
  SignalWatch signals;
  CLI::App app("run language models that are larger than memory", "sluice");
  app.formatter(std::make_shared<HelpFormatter>());
  app.footer(
      "Exit status: 0 done, 1 failed at run time, 2 wrong usage, 3 model or input refused, 4 does "
      "not fit the budget.");
  bool verbose = false;  // read before the version flag, which is defined later
  app.add_flag("-v", verbose, "With --version, also print which kernels are used, and why");
  app.set_version_flag(
      "--version", [&] { return version_text(verbose); }, "Print the version and end");
  app.set_help_flag("-h,--help", "Print this help and end");
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default(false);
  define_run(app, signals);
  define_batch(app, signals.token(), signals.shrink());
  define_serve(app, signals.token(), signals.shrink());
  for (auto* define : {define_plan, define_inspect, define_logits, define_eval, define_tokenize,
                       define_detokenize, define_render, define_pull, define_list, define_show,
                       define_rm, define_report, define_spill, define_bench, define_docs}) {
    define(app, signals.token());
  }
  int status = dispatch(app, argc, argv);
  signals.end_if_asked();
  return status;
}

}  // namespace
}  // namespace sluice::cli

int main(int argc, char** argv) {
  sluice::cli::prepare_process();
  try {
    return sluice::cli::run_main(argc, argv);
  } catch (const sluice::Error& e) {  // before there is anything to run
    return sluice::cli::report_error(e.kind(), e.what());
  }
}
