#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/cli/help.h"
#include "src/cli/near_miss.h"
#include "src/cli/output.h"
#include "src/cli/ranks.h"
#include "src/cli/settings.h"
#include "src/cli/signals.h"
#include "src/cli/usage_error.h"
#include "src/cli/verbs.h"
#include "src/cli/version.h"
#include "src/ranks/mpi_group.h"

namespace sluice::cli {
namespace {

int report_error(ErrorKind kind, std::string_view what) {
  // Rank 0 says what is wrong, and any status but 0 could end it before.
  if (MpiGroup::is_follower()) return 0;
  log::show(fmt::format("sluice: {}\n", one_line(what)));
  return static_cast<int>(kind);
}

// The library only says that a subcommand is missing.
void refuse_unknown_verb(const CLI::App& app, std::string_view given) {
  std::vector<std::string> verbs{"help"};
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_name() == given) return;
    if (!verb->get_group().empty()) verbs.push_back(verb->get_name());
  }
  if (const auto meant = near_miss(given, verbs))
    fail(ErrorKind::usage, "unknown command {}; did you mean {}?", given, *meant);
  fail(ErrorKind::usage, "unknown command {}; choose one of: {}", given, fmt::join(verbs, ", "));
}

// "sluice help COMMAND" is "sluice COMMAND --help", as with git.
std::vector<std::string> arguments_of(const CLI::App& app, int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.front() == "help") {
    std::rotate(arguments.begin(), arguments.begin() + 1, arguments.end());
    arguments.back() = "--help";
  }
  if (!arguments.front().starts_with('-')) refuse_unknown_verb(app, arguments.front());
  return arguments;
}

// The innermost verb that was given.
const CLI::App& verb_of(const CLI::App& app) {
  const CLI::App* verb = &app;
  for (auto given = app.get_subcommands(); !given.empty(); given = verb->get_subcommands())
    verb = given.front();
  return *verb;
}

void run_verb(CLI::App& app, Settings& settings, int argc, char** argv) {
  std::vector<std::string> arguments = settings.complete(app, arguments_of(app, argc, argv));
  std::ranges::reverse(arguments);  // as the library takes them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::Success& e) {  // --help, --version
    std::ostringstream text;
    app.exit(e, text, text);
    print(text.str());
  }
}

// Starts the ranks, in which this command line runs.
int dispatch_ranks(const StartRanks& start, int argc, char** argv, const SignalWatch& signals) {
  try {
    return start_ranks(start, argc, argv, signals);
  } catch (const Error& e) {
    return report_error(e.kind(), e.what());
  }
}

int dispatch(CLI::App& app, int argc, char** argv, const SignalWatch& signals) {
  Settings settings;
  try {
    if (argc < 2) {
      log::show(short_help(app));
      fail(ErrorKind::usage, "give a command; sluice help COMMAND describes it");
    }
    run_verb(app, settings, argc, argv);
    return 0;
  } catch (const StartRanks& start) {
    return dispatch_ranks(start, argc, argv, signals);
  } catch (const CLI::ParseError& e) {
    const std::string what = usage_sentence(verb_of(app), e);
    return report_error(ErrorKind::usage, what + settings.origin(what));
  } catch (const Error& e) {
    return report_error(e.kind(), e.what() + settings.origin(e.what()));
  } catch (const std::bad_alloc&) {
    return report_error(ErrorKind::no_fit,
                        "the system has no memory left; close other programs or lower --memory");
  } catch (const std::filesystem::filesystem_error& e) {
    return report_error(ErrorKind::runtime,
                        fmt::format("{}: {}", e.path1().string(), e.code().message()));
  } catch (const std::exception& e) {
    return report_error(ErrorKind::runtime, e.what());
  }
}

int run_main(int argc, char** argv) {
  SignalWatch signals;
  CLI::App app("Run language models, also those that are larger than memory", "sluice");
  app.formatter(std::make_shared<HelpFormatter>());
  app.footer(
      "An option that is not given is taken from the environment (SLUICE_MAX_TOKENS for\n"
      "--max-tokens), then from the file of --config.\n"
      "Exit status: 0 done, 1 failed at run time, 2 wrong usage, 3 model or input\n"
      "refused, 4 does not fit the budget.");
  bool verbose = false;  // read before the version flag, which is defined later
  app.add_flag("-v", verbose, "With --version, also print which kernels are used, and why");
  app.set_version_flag(
      "--version", [&] { return version_text(verbose); }, "Print the version and end");
  app.set_help_flag("-h,--help", "Print this help and end");
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default();
  define_run(app, signals);
  define_chat(app, signals);
  define_batch(app, signals.token(), signals.shrink());
  define_serve(app, signals.token(), signals.shrink());
  for (auto* define :
       {define_plan, define_inspect, define_logits, define_eval, define_tokenize, define_detokenize,
        define_render, define_pull, define_list, define_show, define_rm, define_report,
        define_shard, define_quantize, define_convert, define_spill, define_bench, define_docs}) {
    define(app, signals.token());
  }
  int status = dispatch(app, argc, argv, signals);
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
