// Lines that somebody types, with editing and history at a terminal, or that come from a pipe.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "src/cli/signals.h"

namespace sluice::cli {

class LineEditor {
 public:
  struct Line {
    std::string text;
    bool interrupted = false;  // Ctrl-C: what was typed is dropped
  };

  // At a terminal where both standard input and output are one. `history`: a file that keeps what
  // is typed there; empty: none.
  LineEditor(SignalWatch& signals, const std::filesystem::path& history);
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  bool at_terminal() const { return terminal_ != nullptr; }
  // Without its end; nullopt: there are no more. Error(runtime) where a signal asks to stop
  // meanwhile.
  std::optional<Line> next(const std::string& prompt);
  void remember(const std::string& line);  // in the history

 private:
  struct Terminal;
  struct Pipe;
  std::unique_ptr<Terminal> terminal_;
  std::unique_ptr<Pipe> pipe_;
};

}  // namespace sluice::cli
