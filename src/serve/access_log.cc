#include "src/serve/access_log.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <ctime>

#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/log.h"

namespace sluice {
namespace {

constexpr size_t kLongestPath = 256, kLongestMethod = 32;  // bytes that are kept

// In microseconds.
double seconds_between(AccessEntry::Clock::time_point from, AccessEntry::Clock::time_point to) {
  constexpr double kMicroseconds = 1e6;
  const std::chrono::duration<double> seconds = to - from;
  return std::round(seconds.count() * kMicroseconds) / kMicroseconds;
}

std::string time_text(double time) {
  constexpr double kMilliseconds = 1000;
  const auto whole = static_cast<std::time_t>(time);
  const auto rest = static_cast<int>((time - static_cast<double>(whole)) * kMilliseconds);
  std::tm parts{};
  gmtime_r(&whole, &parts);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", parts, rest);
}

}  // namespace

std::string access_line(const AccessEntry& e, AccessEntry::Clock::time_point now, double time) {
  nlohmann::ordered_json line{{"time", time_text(time)},
                              {"request_id", e.request_id},
                              {"method", e.method.substr(0, kLongestMethod)},
                              {"path", e.path.substr(0, kLongestPath)},
                              {"status", e.status}};
  if (e.tokens) {
    line["prompt_tokens"] = e.tokens->prompt;
    line["cached_tokens"] = e.tokens->cached;
    line["completion_tokens"] = e.tokens->completion;
  }
  if (e.failed) line["failed"] = true;
  if (e.first_token) line["first_token_seconds"] = seconds_between(e.began, *e.first_token);
  line["seconds"] = seconds_between(e.began, now);
  line["bytes"] = e.bytes;
  return line.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

AccessLog::AccessLog(const std::string& path)
    : name_(path == "-" ? "standard output" : path),
      file_(path == "-" ? ::dup(STDOUT_FILENO)
                        : ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640)) {
  if (file_.get() < 0) fail_errno(errno, "--access-log {}: cannot be written", name_);
}

void AccessLog::add(const AccessEntry& entry) {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  const std::string line = access_line(entry, AccessEntry::Clock::now(), now);
  sigset_t pipe;  // a reader that goes away ends nothing
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
  pollfd room{file_.get(), POLLOUT, 0};
  const bool written = ::poll(&room, 1, 0) == 1 && ::write(file_.get(), line.data(), line.size()) ==
                                                       static_cast<ssize_t>(line.size());
  if (written || failed_) return;
  failed_ = true;
  log::warning("{}: a line of the access log could not be written; there may be more", name_);
}

}  // namespace sluice
