// What a model thinks, apart from what it says: <think>...</think> and its kin.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// What is around the thoughts of a model that has any.
struct ThoughtTags {
  std::string_view open;
  std::string_view close;
  bool begun = false;  // the prompt has the first of them
};
// Of an answer to a prompt that ends so; nullopt: it has no thoughts, as the template knows none,
// or the prompt has ended them.
std::optional<ThoughtTags> thought_tags(std::string_view chat_template, std::string_view prompt);

// Whether the tags of such a model are special tokens, which a text shows on request only.
bool thinks_in_special_tokens(std::string_view chat_template);

class ReasoningSplitter {
 public:
  struct Part {
    bool reasoning = false;
    std::string text;
  };

  // `prompt`: what the answer continues; it may have begun to think already.
  explicit ReasoningSplitter(std::string_view prompt);

  // The parts that are certain once `text` has come; with `last`, all that is left. Only an answer
  // that begins with thoughts has any. Line breaks around thoughts belong to nothing.
  std::vector<Part> add(std::string_view text, bool last = false);

 private:
  enum class State { start, thinking, thought, saying };
  bool advance(bool last, std::vector<Part>& parts);
  bool find_open(bool last);
  bool find_close(bool last, std::vector<Part>& parts);
  void give(bool reasoning, size_t bytes, std::vector<Part>& parts);

  State state_ = State::start;
  std::string close_;   // what ends the thoughts
  std::string held_;    // text that is not certain
  bool begun_ = false;  // some of the thoughts has been given
};

}  // namespace sluice
