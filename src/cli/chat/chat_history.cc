#include "src/cli/chat/chat_history.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "io/file.h"
#include "src/base/environment.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/units.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

// The file is shortened to half of what it may have, so that this is seldom done.
constexpr uint64_t kMostHistoryBytes = 256 * KiB;
constexpr ptrdiff_t kMostMessages = 1000;
constexpr size_t kLongestMessage = 16 * KiB;  // longer ones are not kept

std::string history_line(const std::string& message) {
  return Json(message).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<std::string> history_messages(const std::string& text) {
  std::vector<std::string> messages;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const Json message = Json::parse(text.begin() + static_cast<ptrdiff_t>(at),
                                     text.begin() + static_cast<ptrdiff_t>(end), nullptr, false);
    if (message.is_string()) messages.push_back(message.get<std::string>());
    at = end + 1;
  }
  return messages;
}

void append_to(const fs::path& file, const std::string& text) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  const io::Fd fd(open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK,
                       S_IRUSR | S_IWUSR));
  struct stat now{};
  if (!fd.is_open() || fstat(fd.get(), &now) != 0)
    fail_errno(errno, "{}: cannot be written", file.string());
  if (!S_ISREG(now.st_mode)) fail(ErrorKind::runtime, "{}: is not a regular file", file.string());
  if (write(fd.get(), text.data(), text.size()) != std::ssize(text))
    fail_errno(errno, "{}: cannot be written", file.string());
}

// Appears as a whole, so that a program that is killed leaves the old one.
void shorten(const fs::path& file, const std::vector<std::string>& messages) {
  fs::path part = file;
  part += fmt::format(".{}", getpid());
  std::error_code ignored;
  fs::remove(part, ignored);
  std::string lines;
  for (const std::string& message : messages) lines += history_line(message);
  append_to(part, lines);
  if (rename(part.c_str(), file.c_str()) != 0) {
    const int error = errno;
    fs::remove(part, ignored);
    fail_errno(error, "{}: cannot be replaced", file.string());
  }
}

}  // namespace

fs::path ChatHistory::usual_file() {
  const fs::path state = environment("XDG_STATE_HOME"), home = environment("HOME");
  if (state.is_absolute()) return state / "sluice/chat_history";
  return home.empty() ? home : home / ".local/state/sluice/chat_history";
}

std::vector<std::string> ChatHistory::read() {
  std::error_code error;
  if (file_.empty() || !fs::exists(file_, error)) return {};
  try {
    // Several programs may have written since one has shortened it.
    const std::string text = io::read_small_file(file_, 64 * kMostHistoryBytes);
    std::vector<std::string> messages = history_messages(text);
    if (text.size() <= kMostHistoryBytes && std::ssize(messages) <= 2 * kMostMessages)
      return messages;
    uint64_t bytes = 0;
    auto first = messages.end();
    while (first != messages.begin() && messages.end() - first < kMostMessages) {
      bytes += history_line(*std::prev(first)).size();
      if (bytes > kMostHistoryBytes / 2) break;
      --first;
    }
    messages.erase(messages.begin(), first);
    shorten(file_, messages);
    return messages;
  } catch (const Error& e) {
    log::warning("the history is not kept: {}", e.what());
    file_.clear();
    return {};
  }
}

void ChatHistory::add(const std::string& message) {
  if (file_.empty() || message.size() > kLongestMessage) return;
  try {
    append_to(file_, history_line(message));
  } catch (const Error& e) {
    log::warning("the history is not kept: {}", e.what());
    file_.clear();
  }
}

}  // namespace sluice::cli
