#include "src/cli/ranks.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/environment.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/strings.h"
#include "src/engine/ranks.h"
#include "src/plan/rates.h"
#include "src/ranks/exchange_speed.h"
#include "src/ranks/mpi_group.h"

namespace sluice::cli {
namespace {

constexpr int kSignalled = 128;  // and the signal: a shell's exit status

// The path of a program that PATH has.
std::optional<std::string> find_program(std::string_view name) {
  std::string_view rest = environment("PATH");
  while (!rest.empty()) {
    const std::string_view directory = take_until(rest, ':');
    std::string file = fmt::format("{}/{}", directory, name);
    if (!directory.empty() && access(file.c_str(), X_OK) == 0) return file;
  }
  return std::nullopt;
}

std::vector<std::string> launch_line(const std::string& launcher, int ranks, int argc,
                                     char** argv) {
  std::vector<std::string> line{launcher, "--oversubscribe",    "--bind-to", "none",
                                "-n",     std::to_string(ranks)};
  if (geteuid() == 0) line.emplace_back("--allow-run-as-root");  // as this process is, too
  std::array<char, 4096> self{};
  const ssize_t length = readlink("/proc/self/exe", self.data(), self.size() - 1);
  line.emplace_back(length > 0 ? self.data() : argv[0]);
  line.insert(line.end(), argv + 1, argv + argc);
  return line;
}

// In the child: nothing but calls that are safe after a fork. An interrupt of the terminal comes by
// its parent, as one request.
[[noreturn]] void become(const char* program, char* const* line, int errors) {
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGINT);
  sigprocmask(SIG_SETMASK, &blocked, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  dup2(errors, STDERR_FILENO);
  execv(program, line);
  _exit(kSignalled - 1);
}

// Passes on what the ranks write to stderr. What mpirun itself says, between lines of dashes, is
// about a rank's end: of it the line that names a rank and a signal is kept.
class RankMessages {
 public:
  void take(std::string_view text) {
    pending_ += text;
    for (size_t end = 0; (end = pending_.find('\n')) != std::string::npos;) {
      take_line(pending_.substr(0, end + 1));
      pending_.erase(0, end + 1);
    }
  }
  void finish() {
    if (!pending_.empty()) take_line(std::exchange(pending_, {}));
  }
  const std::string& death() const { return death_; }
  bool said_error() const { return !message_.empty(); }

 private:
  void take_line(const std::string& line) {
    constexpr std::string_view kBorder = "--------------------------------------------------------";
    if (line.starts_with(kBorder)) {
      inside_ = !inside_;
    } else if (inside_) {
      take_death(line);
    } else if (line.starts_with("sluice: ")) {
      if (line != message_) log::show(line);  // two ranks may find the same fault
      message_ = line;
    } else if (!line.starts_with("mpirun: ") && line != "\n") {
      log::show(line);
    }
  }

  // "mpirun noticed that process rank 1 with PID 7 on node a exited on signal 9 (Killed)."
  void take_death(const std::string& line) {
    const size_t rank = line.find("process rank "), with = line.find(" with PID", rank);
    const size_t exited = line.find(" exited on signal", with);
    if (exited == std::string::npos || with > exited) return;
    constexpr size_t kProcess = std::string_view("process ").size();
    death_ = line.substr(rank + kProcess, with - rank - kProcess) +
             line.substr(exited, line.find_last_not_of(".\n") + 1 - exited);
  }

  std::string pending_;
  std::string death_;
  std::string message_;  // the last one of ours
  bool inside_ = false;
};

int exit_status(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
}

// Checks what the options of all ranks ask for against the ranks that there are.
void check_ranks(const CommonOptions& o) {
  const int ranks = o.ranks->rank().size;
  const std::vector<int> stages = o.ranks->gather(o.pipeline_parallel_size);
  o.ranks->together([&] {
    if (stages.front() != o.pipeline_parallel_size)
      fail(ErrorKind::usage,
           "--pipeline-parallel-size {}: rank 0 has {}; give all ranks the same number",
           o.pipeline_parallel_size, stages.front());
    if (o.tensor_parallel_size == 1 || asked_ranks(o) == ranks) return;
    fail(ErrorKind::usage,
         "--tensor-parallel-size {} and --pipeline-parallel-size {}: the launcher has started {} "
         "ranks",
         o.tensor_parallel_size, o.pipeline_parallel_size, ranks);
  });
}

// Measures how fast the ranks exchange rows, which rank 0 remembers for `plan`. One that a launcher
// has started alone exchanges nothing.
void learn_exchange(const Group& group) {
  if (group.rank().size == 1) return;
  const ExchangeSpeed speed = measure_exchange(group);
  if (group.rank().rank > 0) return;
  RateKeys keys;
  keys.several_hosts = group.sharing().host < group.rank().size;
  const std::array<Observation, 2> seen{
      {{RateKind::messages, speed.messages_per_second}, {RateKind::ranks, speed.bytes_per_second}}};
  remember_rates(rates_file(), keys, seen);
}

// Rank 0's work: an error before it has a planner is that of all ranks.
void lead_ranks(const Group& group, const std::function<void()>& lead) {
  try {
    lead();
  } catch (const Error& e) {
    if (!group.is_over()) group.agree(&e);
    throw;
  }
}

// Makes this rank's planner and does what rank 0 does. Only an error that rank 0 cannot hear of is
// said here.
void follow_ranks(const CommonOptions& o, const std::stop_token& stop, bool needs_head) {
  log::set_level(log::Level::off);
  bool has_options = false;
  try {
    ModelOptions options = model_options(o);
    has_options = true;
    options.needs_head = needs_head;
    Planner planner(std::move(options));
    std::optional<LoadedModel> model;
    follow(planner, model, stop);
  } catch (const Error& e) {
    if (!o.ranks->is_over() && !has_options) o.ranks->agree(&e);
    if (!o.ranks->is_over()) o.ranks->break_off();
    const std::string name = has_options ? "" : fmt::format("rank {}: ", o.ranks->rank().rank);
    if (o.ranks->is_broken()) log::show(fmt::format("sluice: {}{}\n", name, one_line(e.what())));
    throw;
  }
}

}  // namespace

int asked_ranks(const CommonOptions& o) {
  return o.tensor_parallel_size * o.pipeline_parallel_size;
}

void on_ranks(CommonOptions& o, const std::stop_token& stop, bool needs_head,
              const std::function<void()>& lead) {
  if (!MpiGroup::is_started()) {
    if (const int ranks = asked_ranks(o); ranks > 1) throw StartRanks{ranks};
    return lead();
  }
  o.ranks = MpiGroup::join(std::chrono::seconds(o.rank_timeout));
  lead_ranks(*o.ranks, [&] {
    check_ranks(o);
    learn_exchange(*o.ranks);
    if (o.ranks->rank().rank > 0) return follow_ranks(o, stop, needs_head);
    lead();
  });
}

int start_ranks(const StartRanks& start, int argc, char** argv, const SignalWatch& signals) {
  const std::optional<std::string> launcher = find_program("mpirun");
  if (!launcher) {
    fail(ErrorKind::usage,
         "{} ranks need mpirun, which is not in PATH; install OpenMPI (Debian: openmpi-bin)",
         start.ranks);
  }
  std::vector<std::string> line = launch_line(*launcher, start.ranks, argc, argv);
  std::vector<char*> words;
  for (std::string& word : line) words.push_back(word.data());
  words.push_back(nullptr);
  std::array<int, 2> errors{};
  if (pipe2(errors.data(), O_CLOEXEC) != 0) fail_errno(errno, "cannot start {}", *launcher);
  const pid_t child = fork();
  if (child == 0) become(launcher->c_str(), words.data(), errors[1]);
  close(errors[1]);
  if (child < 0) fail_errno(errno, "cannot start {}", *launcher);
  RankMessages messages;
  int status = 0;
  {
    const std::stop_callback on_stop(signals.token(), [&] { kill(child, SIGTERM); });
    std::array<char, 4096> text{};
    ssize_t count = 0;
    while ((count = read(errors[0], text.data(), text.size())) > 0 || (count < 0 && errno == EINTR))
      if (count > 0) messages.take({text.data(), static_cast<size_t>(count)});
    messages.finish();
    status = exit_status(child);
  }
  close(errors[0]);
  if (status < kSignalled || signals.token().stop_requested()) return status;
  if (messages.said_error()) return static_cast<int>(ErrorKind::runtime);
  fail(ErrorKind::runtime, "{}, and the run with it",
       messages.death().empty() ? "a rank was ended" : messages.death());
}

}  // namespace sluice::cli
