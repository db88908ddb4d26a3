// The lines of earlier conversations: a file of the user, one message a line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sluice::cli {

class ChatHistory {
 public:
  // $XDG_STATE_HOME/sluice/chat_history, or ~/.local/state/...; empty where there is neither.
  static std::filesystem::path usual_file();
  // Empty: nothing is kept.
  explicit ChatHistory(std::filesystem::path file) : file_(std::move(file)) {}

  // The messages, the oldest first. Shortens a file that has grown beyond its bound.
  std::vector<std::string> read();
  // Appends a message at once, so that several programs share the file and a killed one loses
  // nothing. The first fault is logged, and nothing more is kept.
  void add(const std::string& message);

 private:
  std::filesystem::path file_;
};

}  // namespace sluice::cli
