#include "io/checkpoint/json_events.h"

#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "io/file.h"
#include "src/base/error.h"

namespace sluice::io {
namespace {

using Json = nlohmann::json;
using Kind = JsonEvent::Kind;

// "[...] parse error ... - invalid string: ill-formed UTF-8 byte; last read: '...'": the fault
// alone, without the quoted text, which can be long or binary.
std::string fault_of(const Json::exception& error) {
  std::string what = error.what();
  if (size_t quote = what.find("; last read"); quote != std::string::npos) what.resize(quote);
  if (size_t id = what.find("] "); id != std::string::npos) what.erase(0, id + 2);
  if (size_t dash = what.find(" - "); dash != std::string::npos) what.erase(0, dash + 3);
  return printable(what);
}

// The text, byte by byte, without what is too long of its strings.
class Text {
 public:
  Text(const JsonSource& source, std::string_view where) : source_(source), where_(where) {
    advance();
  }
  bool at_end() const { return !has_current_; }
  char current() const { return current_; }
  void advance();
  uint64_t left_out() const { return left_out_; }  // bytes, so far

 private:
  bool fetch(char& byte);
  void follow(char byte);
  bool may_cut(char next) const;
  void skip_to_quote();

  const JsonSource& source_;
  std::string_view where_;
  std::string_view piece_;
  bool has_current_ = false;
  char current_ = 0;
  uint64_t left_out_ = 0;
  bool in_string_ = false;
  size_t length_ = 0;       // of the string or number that `current_` lies in
  bool escaped_ = false;    // the byte before began an escape
  int hex_left_ = 0;        // digits of \uXXXX that are to come
  uint32_t code_unit_ = 0;  // of the last one
};

bool Text::fetch(char& byte) {
  if (piece_.empty()) piece_ = source_();
  if (piece_.empty()) return false;
  byte = piece_.front();
  piece_.remove_prefix(1);
  // The parser takes a NUL for the end of the text, and would not look at what follows.
  if (byte == '\0') fail(ErrorKind::refused, "{}: not valid JSON: contains a NUL", where_);
  return true;
}

void Text::advance() {
  char byte = 0;
  has_current_ = fetch(byte);
  if (!has_current_) return;
  if (in_string_ && byte != '"' && length_ >= kLongestJsonString && may_cut(byte)) {
    ++left_out_;
    escaped_ = byte == '\\';
    skip_to_quote();
    byte = '"';
  }
  current_ = byte;
  follow(byte);
}

void Text::follow(char byte) {
  if (!in_string_) {
    in_string_ = byte == '"';
    code_unit_ = 0;
    bool numeric = (byte >= '0' && byte <= '9') || byte == '+' || byte == '-' || byte == '.' ||
                   byte == 'e' || byte == 'E';
    length_ = numeric ? length_ + 1 : 0;
    if (length_ > kLongestJsonString)
      fail(ErrorKind::refused, "{}: not valid JSON: a number is too long", where_);
    return;
  }
  ++length_;
  if (hex_left_ > 0) {
    --hex_left_;
    code_unit_ = code_unit_ << 4 | static_cast<uint32_t>(byte <= '9' ? byte : byte + 9) % 16;
  } else if (escaped_) {
    escaped_ = false;
    hex_left_ = byte == 'u' ? 4 : 0;
    code_unit_ = 0;
  } else {
    escaped_ = byte == '\\';
    in_string_ = byte != '"';
    if (!escaped_) code_unit_ = 0;
  }
}

// Returns whether a string may end before `next`: not within a sequence of UTF-8 or an escape, nor
// between the two of a surrogate pair.
bool Text::may_cut(char next) const {
  bool continues = (static_cast<unsigned char>(next) & 0xC0) == 0x80;
  bool high_surrogate = (code_unit_ & 0xFC00) == 0xD800;
  return !continues && !escaped_ && hex_left_ == 0 && !high_surrogate;
}

// The string's end takes the place of what is left of it. Where there is none, neither is an end of
// the text that the parser accepts.
void Text::skip_to_quote() {
  for (char byte = 0; fetch(byte);) {
    if (!escaped_ && byte == '"') break;
    ++left_out_;
    escaped_ = !escaped_ && byte == '\\';
  }
  escaped_ = false;
}

// The input iterator that the parser takes.
class TextIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  explicit TextIterator(Text* text) : text_(text) {}  // null: the end of any text
  char operator*() const { return text_->current(); }
  TextIterator& operator++() {
    text_->advance();
    return *this;
  }
  bool operator==(const TextIterator& other) const { return at_end() == other.at_end(); }

 private:
  bool at_end() const { return text_ == nullptr || text_->at_end(); }
  Text* text_;
};

// Has the functions that nlohmann's sax_parse calls.
class Events {
 public:
  Events(const Text& text, std::string_view where, int max_depth,
         const std::function<void(const JsonEvent&)>& handle)
      : text_(text), where_(where), max_depth_(max_depth), handle_(handle) {}

  bool null() { return emit(Kind::other); }
  bool boolean(bool) { return emit(Kind::other); }
  bool number_integer(Json::number_integer_t n) {
    if (n >= 0) return number_unsigned(static_cast<uint64_t>(n));
    return emit(Kind::negative);
  }
  bool number_unsigned(Json::number_unsigned_t n) { return emit(Kind::natural, {}, n); }
  bool number_float(Json::number_float_t, const std::string&) { return emit(Kind::fraction); }
  bool string(std::string& text) { return emit(Kind::string, text); }
  bool binary(Json::binary_t&) { return false; }  // not in JSON text
  bool start_object(size_t) { return begin(Kind::object); }
  bool start_array(size_t) { return begin(Kind::array); }
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool key(std::string& text) {
    key_ = text;
    return true;
  }
  bool parse_error(size_t position, const std::string&, const Json::exception& error) {
    fail(ErrorKind::refused, "{}: not valid JSON: at byte {}: {}", where_,
         position + text_.left_out(), fault_of(error));
  }

 private:
  bool emit(Kind kind, std::string_view text = {}, uint64_t number = 0) {
    handle_({kind, depth_, key_, text, number});
    key_.clear();
    return true;
  }
  bool begin(Kind kind) {
    if (depth_ == max_depth_) {
      fail(ErrorKind::refused, "{}: nested too deeply (more than {} levels)", where_, max_depth_);
    }
    emit(kind);
    ++depth_;
    return true;
  }
  bool end() {
    --depth_;
    return emit(Kind::end);
  }

  const Text& text_;
  std::string_view where_;
  int max_depth_;
  const std::function<void(const JsonEvent&)>& handle_;
  int depth_ = 0;
  std::string key_;
};

}  // namespace

void read_json_events(const JsonSource& source, std::string_view where, int max_depth,
                      const std::function<void(const JsonEvent&)>& handle) {
  Text text(source, where);
  Events events(text, where, max_depth, handle);
  Json::sax_parse(TextIterator(&text), TextIterator(nullptr), &events);
}

void read_json_events(std::string_view text, std::string_view where, int max_depth,
                      const std::function<void(const JsonEvent&)>& handle) {
  read_json_events([&] { return std::exchange(text, {}); }, where, max_depth, handle);
}

}  // namespace sluice::io
