// run --chat: turns, and the commands between them. Private to chat.cc and chat_commands.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "src/chat/chat_template.h"
#include "src/chat/conversation.h"
#include "src/chat/reasoning.h"
#include "src/cli/chat/line_editor.h"
#include "src/cli/chat/word_wrap.h"
#include "src/cli/run_options.h"

namespace sluice::cli {

// Tokens and time of one turn.
struct TurnStats {
  int64_t prompt_tokens = 0;  // of the conversation
  int64_t reused_tokens = 0;  // of them whose keys and values were there
  int64_t generated_tokens = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

class Chat {
 public:
  Chat(const RunOptions& options, SignalWatch& signals);
  void run();

 private:
  // The next message; nullopt: there are no more. A backslash at a line's end, and lines between
  // two """, make one message of several lines.
  std::optional<std::string> read_message();
  std::optional<std::string> read_line(const std::string& prompt);
  void take(const std::string& message);

  void answer(const std::string& message);
  // To the last message. Returns whether the model said something.
  bool respond();
  std::string render();
  // Renders the conversation, without its oldest turns where --context-shift drops them.
  std::vector<int32_t> make_room(std::string& text);
  void tell_end(const std::string& finish_reason, int64_t tokens, int64_t answer) const;
  Request request(std::vector<int32_t> prompt);
  // The model's answer, printed as it comes: its ids, and why it ended ("interrupted", ...).
  struct Answer {
    ChatMessage message{.role = "assistant", .content = {}, .reasoning = {}};
    std::vector<int32_t> ids;
    std::string finish_reason = "interrupted";
  };
  Answer generate(Request request, const std::string& prompt_text);
  void show(const ReasoningSplitter::Part& part, ChatMessage& message);
  void dim(bool thoughts);
  void end_text();

  // Commands, in chat_commands.cc. False: the conversation is over.
  struct Command;
  bool command(std::string_view line);
  bool help(const std::string& rest);
  bool regenerate(const std::string& rest);
  bool undo(const std::string& rest);
  bool drop(const std::string& rest);
  bool set(const std::string& rest);
  bool reset(const std::string& rest);
  bool save(const std::string& rest);
  bool load(const std::string& rest);
  bool system(const std::string& rest);
  bool stats(const std::string& rest);
  bool leave(const std::string& rest);

  const RunOptions& options_;
  SignalWatch& signals_;
  Planner planner_;
  std::unique_ptr<Planner> draft_;  // until the models are loaded; null without --draft-model
  int64_t context_;                 // tokens that the conversation may have
  int64_t max_tokens_;              // of an answer; 0: as many as there is room for
  SamplingParams sampling_;
  ChatTemplate template_;
  TemplateVariables variables_;
  std::optional<RunModels> models_;
  std::optional<Engine> engine_;
  std::optional<LineEditor> editor_;
  std::optional<WordWrap> wrap_;  // at a terminal
  Conversation conversation_;
  std::optional<ConversationIds> ids_;
  TurnStats turn_;
  int64_t turns_ = 0;
  int followed_ = 0;  // requests for less memory
  bool over_ = false;
  bool dimmed_ = false;
};

}  // namespace sluice::cli
