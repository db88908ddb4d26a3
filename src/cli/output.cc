#include "src/cli/output.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "io/stream.h"
#include "src/base/error.h"
#include "src/cli/signals.h"

namespace sluice::cli {
namespace {

template <class Work>
void naming(const char* option, Work work) {
  try {
    work();
  } catch (const Error& e) {
    fail(e.kind(), "{} {}", option, e.what());
  }
}

void write_document(const JsonWriter::Sink& sink, const WriteJson& write) {
  JsonWriter json(sink, 2);
  write(json);
  json.flush("\n");
}

}  // namespace

void print(std::string_view text) {
  while (!text.empty()) {
    await_stdout();
    // A pipe that has room takes PIPE_BUF bytes at once.
    ssize_t n = ::write(STDOUT_FILENO, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EINTR && errno != EAGAIN) {
      fail_errno(errno, "cannot write the result to standard output");
    }
  }
}

// mpirun gives its ranks a terminal of its own, and passes on what they write.
bool stdout_is_terminal() {
  return isatty(STDOUT_FILENO) == 1 && std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr;
}

void print_speech(std::string_view text) {
  print(stdout_is_terminal() ? speech_for_terminal(text) : std::string(text));
}

void print_json(const Json& json) {
  print_json([&](JsonWriter& writer) { writer.value(json); });
}

void print_json(const WriteJson& write) { write_document(print, write); }

void write_text(const std::string& path, std::string_view text, const char* option,
                const std::stop_token& stop) {
  naming(option, [&] { io::write_whole(path, [&](const auto& take) { take(text); }, stop); });
}

void write_json(const std::string& path, const WriteJson& write, const char* option,
                const std::stop_token& stop) {
  naming(option, [&] {
    io::write_whole(path, [&](const auto& take) { write_document(take, write); }, stop);
  });
}

void check_writable(const char* option, const std::string& path) {
  naming(option, [&] { io::check_writable(path); });
}

}  // namespace sluice::cli
