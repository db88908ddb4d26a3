#include "src/cli/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <cstdio>

#include "io/input_stream.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/cli/input.h"
#include "src/text/utf8.h"

namespace sluice::cli {
namespace {

constexpr size_t kLongestLine = 16 * MiB;

}  // namespace

// libedit reads characters through here, so that a signal can end the wait for one.
struct LineEditor::Terminal {
  explicit Terminal(SignalWatch& watch)
      : signals(watch),
        editor(el_init("sluice", stdin, stdout, stderr), el_end),
        history(history_init(), history_end) {
    if (!editor || !history) fail(ErrorKind::runtime, "the line editor cannot be started");
    HistEvent event;
    ::history(history.get(), &event, H_SETSIZE, 1000);
    ::history(history.get(), &event, H_SETUNIQUE, 1);
    el_set(editor.get(), EL_CLIENTDATA, this);
    el_set(editor.get(), EL_PROMPT, prompt_of);
    el_set(editor.get(), EL_EDITOR, "emacs");
    el_set(editor.get(), EL_HIST, ::history, history.get());
    el_set(editor.get(), EL_GETCFN, read_character);
  }

  static Terminal& of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<Terminal*>(self);
  }
  static char* prompt_of(EditLine* editor) { return of(editor).prompt.data(); }

  // 1: a character; 0: the end; -1: interrupted.
  static int read_character(EditLine* editor, wchar_t* character) {
    Terminal& self = of(editor);
    std::string bytes;
    do {
      if (self.signals.token().stop_requested()) return -1;
      std::array<pollfd, 2> files{
          {{STDIN_FILENO, POLLIN, 0}, {self.signals.wake_descriptor(), POLLIN, 0}}};
      if (poll(files.data(), files.size(), -1) < 0 && errno != EINTR) return 0;
      if (files[1].revents != 0) {
        errno = EINTR;
        return -1;
      }
      if (files[0].revents == 0) continue;
      char byte = 0;
      const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (n <= 0) return 0;
      bytes += byte;
    } while (!is_whole(bytes));
    // A Ctrl-D that was typed while an answer was being written: the terminal, not in raw mode
    // then, kept it as a null.
    if (bytes == std::string(1, '\0')) bytes = '\x04';
    const std::string valid = to_valid_utf8(bytes);
    *character = static_cast<wchar_t>(utf8_char_at(valid, 0).code_point);
    return 1;
  }

  static bool is_whole(const std::string& bytes) {
    if (bytes.empty()) return false;
    const auto first = static_cast<unsigned char>(bytes[0]);
    return bytes.size() >= (first < 0xC0 ? 1U : first < 0xE0 ? 2U : first < 0xF0 ? 3U : 4U);
  }

  SignalWatch& signals;
  std::string prompt;
  std::unique_ptr<EditLine, void (*)(EditLine*)> editor;
  std::unique_ptr<History, void (*)(History*)> history;
};

struct LineEditor::Pipe {
  explicit Pipe(const std::stop_token& stop)
      : lines(open_input("-", "--chat", stop), kLongestLine) {}
  io::LineStream lines;
};

LineEditor::LineEditor(SignalWatch& signals) {
  if (isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1) {
    std::setlocale(LC_CTYPE, "C.UTF-8");  // what libedit takes characters for
    terminal_ = std::make_unique<Terminal>(signals);
  } else {
    pipe_ = std::make_unique<Pipe>(signals.token());
  }
}

LineEditor::~LineEditor() = default;

std::optional<LineEditor::Line> LineEditor::next(const std::string& prompt) {
  std::string line;
  if (pipe_) {
    if (!pipe_->lines.next(line, "standard input")) return std::nullopt;
    return Line{.text = to_valid_utf8(line)};
  }
  const SignalWatch::Interrupts interrupts(terminal_->signals);
  terminal_->prompt = prompt;
  int count = 0;
  const char* typed = el_gets(terminal_->editor.get(), &count);
  if (terminal_->signals.token().stop_requested()) fail(ErrorKind::runtime, "stopped by a signal");
  if (interrupts.came()) return Line{.text = {}, .interrupted = true};
  if (typed == nullptr || count <= 0) return std::nullopt;
  line.assign(typed, static_cast<size_t>(count));
  if (line.ends_with('\n')) line.pop_back();
  return Line{.text = std::move(line)};
}

void LineEditor::remember(const std::string& line) {
  if (!terminal_ || line.empty()) return;
  HistEvent event;
  ::history(terminal_->history.get(), &event, H_ENTER, line.c_str());
}

}  // namespace sluice::cli
