// Values as models write them: literals of Python, JSON with faults, Gemma's notation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// Goes through a text.
class TextReader {
 public:
  explicit TextReader(std::string_view text) : text_(text) {}

  bool ended() const { return at_ == text_.size(); }
  size_t at() const { return at_; }
  std::string_view since(size_t begin) const { return text_.substr(begin, at_ - begin); }
  bool next_is(std::string_view text) const { return text_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!next_is(text)) return false;
    at_ += text.size();
    return true;
  }
  void skip_space() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  bool take_behind_space(std::string_view text) {
    skip_space();
    return take(text);
  }
  std::string_view take_until(std::string_view ends) {
    const size_t begin = at_;
    at_ = std::min(text_.find_first_of(ends, at_), text_.size());
    return text_.substr(begin, at_ - begin);
  }
  // Takes the text before `end`, and `end`.
  std::optional<std::string_view> take_before(std::string_view end) {
    const size_t begin = at_, found = text_.find(end, at_);
    if (found == text_.npos) return std::nullopt;
    at_ = found + end.size();
    return text_.substr(begin, found - begin);
  }
  std::string_view rest() const { return text_.substr(at_); }
  void skip(size_t bytes) { at_ = std::min(at_ + bytes, text_.size()); }
  char next() const { return ended() ? '\0' : text_[at_]; }
  char take_char() { return ended() ? '\0' : text_[at_++]; }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

// A text as a string of JSON.
std::string json_string(std::string_view text);

// The quotation mark of Gemma's notation.
inline constexpr std::string_view kKeyedMark = "<|\"|>";

// Reads values and gives them as JSON. False, or nothing: this is none, or it is not certain which.
class Literals {
 public:
  struct Member {
    std::string key;
    std::string value;
  };
  enum class Notation : uint8_t {
    python,
    json,   // with line breaks in strings, quotes as Python's, commas at the end
    keyed,  // Gemma's, where <|"|> is the quotation mark
  };

  Literals(TextReader& in, Notation notation) : in_(in), notation_(notation) {}

  bool value(std::string& json);
  // A key, and what is behind it. The names of keyword arguments, and all of Gemma's, stand
  // without quotation marks.
  bool key(std::string_view separator, std::string& key);
  // Behind what opens it: KEY SEPARATOR VALUE, ... END
  bool members(std::string_view separator, std::string_view end, std::vector<Member>& all);

 private:
  template <class Content>
  bool within(Content content);
  bool is(Notation notation) const { return notation_ == notation; }
  std::optional<bool> any_string(std::string& json);
  std::optional<bool> marked_string(std::string& json);
  bool half_marked_string(std::string& json);
  bool string(std::string_view quote, bool raw, std::string& text);
  bool escape(std::string& text);
  bool json_escape(std::string& text);
  std::optional<char32_t> hex(int digits);
  bool code_point(int digits, std::string& text);
  bool list(std::string_view end, std::string& json);
  bool object(std::string& json);
  bool word(std::string& json);

  TextReader& in_;
  Notation notation_;
  int level_ = 0;
  bool marked_ = false;   // the last value was a string between two marks
  bool escaped_ = false;  // the present string of JSON has escapes,
  bool odd_ = false;      // and has backslashes that are none
};

// The whole of a text. JSON is given as it is.
std::optional<std::string> read_literal(std::string_view text, Literals::Notation notation);
// A text that is an object of JSON, or may be mended to one without guessing.
std::optional<std::string> read_object_text(std::string_view text);

}  // namespace sluice
