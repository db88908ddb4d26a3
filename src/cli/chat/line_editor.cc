#include "src/cli/chat/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <clocale>
#include <cstdio>

#include "io/input_stream.h"
#include "src/base/environment.h"
#include "src/base/error.h"
#include "src/base/units.h"
#include "src/cli/chat/chat_history.h"
#include "src/cli/input.h"
#include "src/cli/output.h"
#include "src/text/utf8.h"

namespace sluice::cli {
namespace {

constexpr size_t kLongestLine = 16 * MiB;
constexpr std::string_view kPasteEnd = "\x1b[201~";

// Asks the terminal to mark what is pasted, while a line is typed.
class PasteMarks {
 public:
  PasteMarks() {
    if (marked()) print("\x1b[?2004h");
  }
  ~PasteMarks() {
    try {
      if (marked()) print("\x1b[?2004l");
    } catch (const Error&) {  // whoever prints next meets it, too
    }
  }
  PasteMarks(const PasteMarks&) = delete;
  PasteMarks& operator=(const PasteMarks&) = delete;

 private:
  static bool marked() {
    const std::string_view terminal = environment("TERM");
    return !terminal.empty() && terminal != "dumb";
  }
};

// Line breaks as the terminal wrote them; one at the end is not wanted.
std::string pasted_text(std::string text) {
  text = to_valid_utf8(text);
  std::erase(text, '\0');
  for (size_t at = 0; (at = text.find("\r\n", at)) != std::string::npos;) text.erase(at, 1);
  std::ranges::replace(text, '\r', '\n');
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

// libedit reads characters through here, so that a signal can end the wait for one.
struct LineEditor::Terminal {
  Terminal(SignalWatch& watch, const std::filesystem::path& file)
      : signals(watch),
        kept(file),
        editor(el_init("sluice", stdin, stdout, stderr), el_end),
        history(history_init(), history_end) {
    if (!editor || !history) fail(ErrorKind::runtime, "the line editor cannot be started");
    HistEvent event;
    ::history(history.get(), &event, H_SETSIZE, 1000);
    ::history(history.get(), &event, H_SETUNIQUE, 1);
    for (const std::string& message : kept.read())
      ::history(history.get(), &event, H_ENTER, message.c_str());
    el_set(editor.get(), EL_CLIENTDATA, this);
    el_set(editor.get(), EL_PROMPT, prompt_of);
    el_set(editor.get(), EL_EDITOR, "emacs");
    el_set(editor.get(), EL_HIST, ::history, history.get());
    el_set(editor.get(), EL_GETCFN, read_character);
    // The terminal drops nothing by itself when an interrupt is typed: it could be a prompt that is
    // printed just then.
    for (const char* mode : {"-d", "-x"}) el_set(editor.get(), EL_SETTY, mode, "+noflsh", nullptr);
    el_source(editor.get(), nullptr);  // ~/.editrc
    // With narrow texts the library would make copies that it never frees.
    el_wset(editor.get(), EL_ADDFN, L"sluice-paste", L"Insert pasted text as it is", paste);
    el_set(editor.get(), EL_BIND, "\\e[200~", "sluice-paste", nullptr);
  }

  static Terminal& of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return *static_cast<Terminal*>(self);
  }
  static char* prompt_of(EditLine* editor) { return of(editor).prompt.data(); }

  // The outcome of a read: a byte, the end, or a signal.
  enum class Came { byte, end, signal };
  Came read_byte(char& byte) {
    for (;;) {
      if (signals.token().stop_requested()) return Came::signal;
      std::array<pollfd, 2> files{
          {{STDIN_FILENO, POLLIN, 0}, {signals.wake_descriptor(), POLLIN, 0}}};
      if (poll(files.data(), files.size(), -1) < 0 && errno != EINTR) return Came::end;
      if (files[1].revents != 0) return Came::signal;
      if (files[0].revents == 0) continue;
      const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
      if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      return n > 0 ? Came::byte : Came::end;
    }
  }

  // 1: a character; 0: the end; -1: interrupted.
  static int read_character(EditLine* editor, wchar_t* character) {
    Terminal& self = of(editor);
    std::string bytes;
    do {
      char byte = 0;
      const Came came = self.read_byte(byte);
      if (came == Came::signal) errno = EINTR;
      if (came != Came::byte) return came == Came::end ? 0 : -1;
      bytes += byte;
    } while (!is_whole(bytes));
    // A Ctrl-D that was typed while an answer was being written: the terminal, not in raw mode
    // then, kept it as a null.
    if (bytes == std::string(1, '\0')) bytes = '\x04';
    const std::string valid = to_valid_utf8(bytes);
    *character = static_cast<wchar_t>(utf8_char_at(valid, 0).code_point);
    return 1;
  }

  // Its line breaks stay in the line. A text that is longer than a line may be is dropped.
  static unsigned char paste(EditLine* editor, int) {
    std::string text;
    bool too_long = false;
    for (char byte = 0; of(editor).read_byte(byte) == Came::byte;) {
      text += byte;
      if (text.ends_with(kPasteEnd)) {
        text.resize(text.size() - kPasteEnd.size());
        break;
      }
      if (text.size() < kLongestLine) continue;
      too_long = true;
      text.erase(0, kLongestLine / 2);
    }
    if (too_long) text.clear();
    return el_insertstr(editor, pasted_text(std::move(text)).c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  static bool is_whole(const std::string& bytes) {
    if (bytes.empty()) return false;
    const auto first = static_cast<unsigned char>(bytes[0]);
    return bytes.size() >= (first < 0xC0 ? 1U : first < 0xE0 ? 2U : first < 0xF0 ? 3U : 4U);
  }

  SignalWatch& signals;
  ChatHistory kept;
  std::string prompt;
  std::unique_ptr<EditLine, void (*)(EditLine*)> editor;
  std::unique_ptr<History, void (*)(History*)> history;
};

struct LineEditor::Pipe {
  explicit Pipe(const std::stop_token& stop)
      : lines(open_input("-", "--chat", stop), kLongestLine) {}
  io::LineStream lines;
};

LineEditor::LineEditor(SignalWatch& signals, const std::filesystem::path& history) {
  if (isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1) {
    std::setlocale(LC_CTYPE, "C.UTF-8");  // what libedit takes characters for
    terminal_ = std::make_unique<Terminal>(signals, history);
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
  SignalWatch::Interrupts interrupts(terminal_->signals);
  interrupts.forget();
  terminal_->prompt = prompt;
  el_resize(terminal_->editor.get());  // the window may have changed
  const PasteMarks marks;
  int count = 0;
  const char* typed = el_gets(terminal_->editor.get(), &count);
  if (terminal_->signals.token().stop_requested()) fail(ErrorKind::runtime, "stopped by a signal");
  if (typed != nullptr) line.assign(typed, static_cast<size_t>(std::max(count, 0)));
  const bool whole = line.ends_with('\n');
  // An interrupt after the end of the line is about its answer.
  if (!whole && interrupts.came()) {
    tcflush(STDIN_FILENO, TCIFLUSH);  // drops the line
    return Line{.text = {}, .interrupted = true};
  }
  if (line.empty()) return std::nullopt;
  if (whole) line.pop_back();
  return Line{.text = std::move(line)};
}

void LineEditor::remember(const std::string& line) {
  if (!terminal_ || line.empty()) return;
  HistEvent event;
  ::history(terminal_->history.get(), &event, H_ENTER, line.c_str());
  terminal_->kept.add(line);
}

}  // namespace sluice::cli
