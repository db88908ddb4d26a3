// The messages of a conversation, and the token ids that stand for it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json.h"
#include "src/text/tokenizer.h"

namespace sluice {

struct ChatMessage {
  std::string role;
  std::string content;
  std::string reasoning;  // empty: none
};

class Conversation {
 public:
  // A list of {role, content}, as `render --messages` takes it; what else a message has (calls of
  // tools) stays with it. Error(refused) that begins with `where`.
  static Conversation from_json(std::string_view text, const std::string& where);
  const Json& json() const { return messages_; }

  void add(const ChatMessage& message);
  void drop_last() { messages_.erase(messages_.size() - 1); }
  // A turn is a message of the user and what follows it.
  size_t turns() const;
  // Removes and returns what follows the last message of the user.
  Json take_answer();
  void put_back(Json answer);
  // Both return whether there was one to drop.
  bool drop_last_turn();
  bool drop_oldest_turn(bool keep_last);
  // Instead of the present one; empty: none.
  void set_system(const std::string& text);
  void reset();  // only the system's message stays

 private:
  bool has_system() const;
  std::vector<size_t> beginnings() const;  // of the turns
  void erase(size_t begin, size_t end);

  Json messages_ = Json::array();
};

// Ids of a conversation that grows: those of earlier turns stay what the model has seen and said,
// also where the tokenizer would write its text with other tokens. So its keys and values stay
// valid.
class ConversationIds {
 public:
  explicit ConversationIds(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}  // outlives this

  // Returns the ids of the whole of a rendered conversation.
  std::vector<int32_t> of(std::string_view text) const;
  // From now on `prompt`, whose text is `text`, and what was generated behind it are known.
  void learn(std::string text, std::vector<int32_t> prompt, std::vector<int32_t> generated);

 private:
  // An answer's end, where what follows can be tokenized apart if it begins with a special token.
  struct Mark {
    size_t bytes = 0;
    size_t tokens = 0;
  };
  bool is_special(int32_t id) const { return tokenizer_.has(id) && tokenizer_.is_special(id); }
  size_t common(std::string_view text) const;  // bytes at the beginning of both

  const Tokenizer& tokenizer_;
  std::string text_;
  std::vector<int32_t> ids_;
  std::vector<Mark> marks_;
};

}  // namespace sluice
