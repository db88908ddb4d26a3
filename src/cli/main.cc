#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/cli/verbs.h"
#include "src/cli/version.h"

namespace sluice::cli {
namespace {

// Turns the first SIGINT or SIGTERM into a stop request, so that work ends in good order; a later
// one ends the process at once. SIGUSR1 asks for less memory. A thread that waits for signals needs
// no handler and no global state.
class SignalWatch {
 public:
  SignalWatch() {
    sigemptyset(&signals_);
    for (int s : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) sigaddset(&signals_, s);
    pthread_sigmask(SIG_BLOCK, &signals_,
                    nullptr);  // inherited by every thread started from here on
    thread_ = std::thread([this] { watch(); });
  }
  ~SignalWatch() {
    pthread_kill(thread_.native_handle(), SIGUSR2);  // "no more"
    thread_.join();
  }
  std::stop_token token() const { return source_.get_token(); }
  // The signal that asked to stop; 0: none.
  int received() const { return received_.load(); }
  // How often less memory was asked for.
  const std::atomic<int>& shrink() const { return shrink_; }

 private:
  // timeout(1), and others, signal the process and then its group, which comes here as two.
  static constexpr std::chrono::milliseconds kSameRequest{200};

  void watch() {
    std::chrono::steady_clock::time_point asked;
    for (int signal = 0; sigwait(&signals_, &signal) == 0 && signal != SIGUSR2;) {
      if (signal == SIGUSR1) {
        ++shrink_;
        continue;
      }
      const auto now = std::chrono::steady_clock::now();
      if (received_ == 0) {
        asked = now;
        received_ = signal;
        source_.request_stop();
      } else if (now - asked > kSameRequest) {
        std::_Exit(128 + signal);
      }
    }
  }

  sigset_t signals_;
  std::stop_source source_;
  std::atomic<int> received_{0};
  std::atomic<int> shrink_{0};
  std::thread thread_;
};

int report_error(ErrorKind kind, const char* what) {
  fmt::print(stderr, "sluice: {}\n", what);
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

int dispatch(CLI::App& app, int argc, char** argv) {
  try {
    refuse_unknown_verb(app, argc, argv);
    app.parse(argc, argv);
    return 0;
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    fmt::print(
        stderr, "sluice: {} (see sluice{} --help)\n", e.what(),
        app.get_subcommands().empty() ? "" : " " + app.get_subcommands().front()->get_name());
    return static_cast<int>(ErrorKind::usage);
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
  app.footer(
      "Exit status: 0 done, 1 failed at run time, 2 wrong usage, 3 model or input refused, 4 does "
      "not fit the budget.");
  bool verbose = false;  // read before the version flag, which is defined later
  app.add_flag("-v", verbose, "with --version: also which kernels are used, and why");
  app.set_version_flag("--version", [&] { return version_text(verbose); });
  app.require_subcommand(1);
  app.option_defaults()->always_capture_default(false);
  define_run(app, signals.token(), signals.shrink());
  define_batch(app, signals.token(), signals.shrink());
  for (auto* define : {define_plan, define_inspect, define_logits, define_eval, define_tokenize,
                       define_detokenize, define_report, define_spill, define_bench, define_docs}) {
    define(app, signals.token());
  }
  int status = dispatch(app, argc, argv);
  if (int signal = signals.received(); signal != 0) {
    // Ends as the signal would have ended it, so that shells and scripts see an interrupt.
    std::fflush(nullptr);
    sigset_t all;
    sigemptyset(&all);
    sigaddset(&all, signal);
    ::signal(signal, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &all, nullptr);
    raise(signal);
  }
  return status;
}

}  // namespace
}  // namespace sluice::cli

int main(int argc, char** argv) { return sluice::cli::run_main(argc, argv); }
