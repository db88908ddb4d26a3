// A model's thoughts, apart from its answer: <think>...</think> and its kin.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// The tags around the thoughts of a model that has any.
struct ThoughtTags {
  std::string_view open;
  std::string_view close;
  bool begun = false;  // the prompt has the first of them, or the model leaves it out
};
// Returns the tags for an answer to a prompt that ends so; nullopt: it has no thoughts, as the
// template knows none, or the prompt has ended them. Models of the R1 kind write no first tag, and
// their templates take away all up to the second one. `begun`: the model is one of these, whatever
// its template has.
std::optional<ThoughtTags> thought_tags(std::string_view chat_template, std::string_view prompt,
                                        bool begun = false);

// Returns whether such a model's tags are special tokens, which a text shows on request only.
bool thinks_in_special_tokens(std::string_view chat_template);

class ReasoningSplitter {
 public:
  struct Part {
    bool reasoning = false;
    std::string text;
    bool may_call = false;  // it begins with the tag of calls, within thoughts
  };

  // `prompt`: what the answer continues; it may have begun to think already. `begun`: see
  // thought_tags(). `call_tag`: of calls that may end thoughts; empty: none does.
  explicit ReasoningSplitter(std::string_view chat_template, std::string_view prompt,
                             bool begun = false, std::string_view call_tag = {});

  // The parts that are certain once `text` has come; with `last`, all that is left. Only an answer
  // that begins with thoughts has any. Line breaks around thoughts belong to nothing. Behind a part
  // that may call nothing is known until go_on() is called.
  std::vector<Part> add(std::string_view text, bool last = false);
  // With a text, of thoughts or of the answer.
  void go_on(std::string_view text, bool thinks);
  std::string_view close() const { return close_; }
  std::string_view call_tag() const { return call_tag_; }

 private:
  enum class State { start, begun, thinking, calling, thought, saying };
  bool advance(bool last, std::vector<Part>& parts);
  bool skip_open(bool last);
  bool find_open(bool last);
  bool find_close(bool last, std::vector<Part>& parts);
  void give(bool reasoning, size_t bytes, std::vector<Part>& parts);

  State state_ = State::start;
  std::string_view open_, close_;  // around the thoughts
  std::string_view call_tag_;
  std::string held_;    // text that is not certain
  bool begun_ = false;  // some of the thoughts has been given
};

}  // namespace sluice
