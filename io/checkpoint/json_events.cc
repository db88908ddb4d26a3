#include "io/checkpoint/json_events.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>

#include "src/base/error.h"

namespace sluice::io {
namespace {

using Kind = JsonEvent::Kind;

constexpr int kNoByte = -1;  // in place of a byte

bool is_digit(int byte) { return byte >= '0' && byte <= '9'; }

// Bytes that a string has as they are and that are characters by themselves.
bool is_plain_byte(char byte) {
  const auto value = static_cast<unsigned char>(byte);
  return value >= 0x20 && value < 0x80 && value != '"' && value != '\\';
}

// A kind of UTF-8 sequence: its bytes (Unicode 15, table 3-7).
struct Sequence {
  int first = 0, last = 0;      // first bytes
  int low = 0x80, high = 0xBF;  // the second byte
  int more = 0;                 // bytes after the second
};
constexpr auto kSequences = std::to_array<Sequence>({{0xC2, 0xDF},
                                                     {0xE0, 0xE0, 0xA0, 0xBF, 1},
                                                     {0xE1, 0xEC, 0x80, 0xBF, 1},
                                                     {0xED, 0xED, 0x80, 0x9F, 1},
                                                     {0xEE, 0xEF, 0x80, 0xBF, 1},
                                                     {0xF0, 0xF0, 0x90, 0xBF, 2},
                                                     {0xF1, 0xF3, 0x80, 0xBF, 2},
                                                     {0xF4, 0xF4, 0x80, 0x8F, 2}});

std::string utf8_of(uint32_t code) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | code >> 6), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | code >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | code >> 18), tail(12), tail(6), tail(0)};
}

// Reads a text piece by piece, value by value (RFC 8259). A library's parser, fed byte by byte to
// bound its memory, took a third of the time in which large checkpoints open.
class EventReader {
 public:
  EventReader(const JsonSource& source, std::string_view where, int max_depth,
              const std::function<void(const JsonEvent&)>& handle)
      : source_(source), where_(where), max_depth_(max_depth), handle_(handle) {}

  void read_all() {
    if (current() == 0xEF) take("\xEF\xBB\xBF");  // a byte order mark
    read_value();
    skip_space();
    if (current() != kNoByte) refuse("something follows the value");
  }

 private:
  int current() {
    if (piece_.empty() && !ended_) {
      piece_ = source_();
      ended_ = piece_.empty();
      if (piece_.find('\0') != piece_.npos)
        fail(ErrorKind::refused, "{}: not valid JSON: contains a NUL", where_);
    }
    return ended_ ? kNoByte : static_cast<unsigned char>(piece_.front());
  }
  void advance(size_t bytes = 1) {
    piece_.remove_prefix(bytes);
    at_ += bytes;
  }
  bool take_if(char byte) {
    if (current() != static_cast<unsigned char>(byte)) return false;
    advance();
    return true;
  }
  void take(std::string_view bytes) {
    for (char byte : bytes)
      if (!take_if(byte)) refuse_current();
  }
  void skip_space() {
    for (int c = current(); c == ' ' || c == '\t' || c == '\n' || c == '\r'; c = current())
      advance();
  }
  [[noreturn]] void refuse(std::string_view fault) const {
    fail(ErrorKind::refused, "{}: not valid JSON: at byte {}: {}", where_, at_ + 1, fault);
  }

  [[noreturn]] void refuse_current() {
    refuse(current() == kNoByte ? "the text ends early" : "an unexpected byte");
  }

  void emit(Kind kind, std::string_view text = {}, uint64_t number = 0) {
    handle_({kind, depth_, key_, text, number});
    key_.clear();
  }

  void read_value();
  void read_members(char end, bool are_named);
  void read_string(std::string& text);
  void keep_plain(std::string& text);
  void keep(std::string& text, std::string_view character) const {
    if (text.size() < kLongestJsonString) text += character;
  }
  std::string read_sequence();
  std::string read_escape();
  uint32_t read_code_unit();
  void read_number();
  void skip_digits(uint64_t begin);

  const JsonSource& source_;
  std::string_view where_;
  int max_depth_;
  const std::function<void(const JsonEvent&)>& handle_;
  std::string_view piece_;
  bool ended_ = false;
  uint64_t at_ = 0;  // bytes before the current one
  int depth_ = 0;
  std::string key_, text_;
};

void EventReader::read_value() {
  skip_space();
  switch (current()) {
    case '{':
      return read_members('}', true);
    case '[':
      return read_members(']', false);
    case '"':
      read_string(text_);
      return emit(Kind::string, text_);
    case 't':
      take("true");
      return emit(Kind::other);
    case 'f':
      take("false");
      return emit(Kind::other);
    case 'n':
      take("null");
      return emit(Kind::other);
    default:
      return read_number();
  }
}

// Reads the members of an object, which have names, or of an array. The nesting is bounded.
void EventReader::read_members(char end, bool are_named) {
  if (depth_ == max_depth_)
    fail(ErrorKind::refused, "{}: nested too deeply (more than {} levels)", where_, max_depth_);
  advance();
  emit(are_named ? Kind::object : Kind::array);
  ++depth_;
  skip_space();
  for (bool is_first = true; !take_if(end); is_first = false, skip_space()) {
    if (!is_first) take(",");
    if (are_named) {
      skip_space();
      read_string(key_);
      skip_space();
      take(":");
    }
    read_value();
  }
  --depth_;
  emit(Kind::end);
}

// Keeps its beginning.
void EventReader::read_string(std::string& text) {
  take("\"");
  text.clear();
  while (true) {
    keep_plain(text);
    const int byte = current();
    if (take_if('"')) return;
    if (byte == kNoByte) refuse("a string has no end");
    if (byte < 0x20) refuse("a string has a control character");
    keep(text, byte == '\\' ? read_escape() : read_sequence());
  }
}

void EventReader::keep_plain(std::string& text) {
  while (current() != kNoByte) {
    const auto plain =
        static_cast<size_t>(std::ranges::find_if_not(piece_, is_plain_byte) - piece_.begin());
    text += piece_.substr(
        0, std::min(plain, kLongestJsonString - std::min(text.size(), kLongestJsonString)));
    advance(plain);
    if (!piece_.empty()) return;
  }
}

std::string EventReader::read_sequence() {
  const int first = current();
  const auto kind = std::ranges::find_if(
      kSequences, [&](const Sequence& s) { return s.first <= first && first <= s.last; });
  if (kind == kSequences.end()) refuse("a string is not UTF-8");
  std::string bytes{static_cast<char>(first)};
  advance();
  for (int i = 0; i <= kind->more; ++i, advance()) {
    const int low = i == 0 ? kind->low : 0x80, high = i == 0 ? kind->high : 0xBF;
    if (current() < low || current() > high) refuse("a string is not UTF-8");
    bytes += static_cast<char>(current());
  }
  return bytes;
}

// Returns what the escape stands for.
std::string EventReader::read_escape() {
  constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
  take("\\");
  const int name = current();
  if (take_if('u')) {
    uint32_t code = read_code_unit();
    if (code >= 0xD800 && code < 0xDC00) {  // the first of a pair of surrogates
      if (!take_if('\\') || !take_if('u')) refuse("half of a surrogate pair");
      const uint32_t low = read_code_unit();
      if (low < 0xDC00 || low >= 0xE000) refuse("half of a surrogate pair");
      code = 0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00));
    } else if (code >= 0xDC00 && code < 0xE000) {
      refuse("half of a surrogate pair");
    }
    return utf8_of(code);
  }
  const size_t which = name == kNoByte ? kNames.npos : kNames.find(static_cast<char>(name));
  if (which == kNames.npos) refuse("an unknown escape");
  advance();
  return {kValues[which]};
}

uint32_t EventReader::read_code_unit() {
  uint32_t unit = 0;
  for (int i = 0; i < 4; ++i, advance()) {
    const int byte = current(), letter = byte | 0x20;
    if (!is_digit(byte) && (byte == kNoByte || letter < 'a' || letter > 'f'))
      refuse("\\u without four hexadecimal digits");
    unit = unit << 4 | static_cast<uint32_t>(is_digit(byte) ? byte - '0' : letter - 'a' + 10);
  }
  return unit;
}

// Skips one digit at least, of a number that begins at `begin`.
void EventReader::skip_digits(uint64_t begin) {
  if (!is_digit(current())) refuse_current();
  for (; is_digit(current()); advance())
    if (at_ - begin > kLongestJsonString) refuse("a number is too long");
}

void EventReader::read_number() {
  constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
  const uint64_t begin = at_;
  const bool is_negative = take_if('-');
  uint64_t value = 0;
  bool is_whole = true;  // and fits
  if (!take_if('0')) {
    if (!is_digit(current())) refuse_current();
    for (; is_digit(current()); advance()) {
      const auto digit = static_cast<uint64_t>(current() - '0');
      if (value > (kMost - digit) / 10) is_whole = false;
      value = value * 10 + digit;
      if (at_ - begin > kLongestJsonString) refuse("a number is too long");
    }
  }
  if (take_if('.')) {
    is_whole = false;
    skip_digits(begin);
  }
  if (take_if('e') || take_if('E')) {
    is_whole = false;
    if (!take_if('-')) take_if('+');
    skip_digits(begin);
  }
  if (!is_whole || (is_negative && value > kMost / 2 + 1)) return emit(Kind::fraction);
  if (is_negative && value > 0) return emit(Kind::negative);
  emit(Kind::natural, {}, value);
}

}  // namespace

void read_json_events(const JsonSource& source, std::string_view where, int max_depth,
                      const std::function<void(const JsonEvent&)>& handle) {
  EventReader(source, where, max_depth, handle).read_all();
}

void read_json_events(std::string_view text, std::string_view where, int max_depth,
                      const std::function<void(const JsonEvent&)>& handle) {
  read_json_events([&] { return std::exchange(text, {}); }, where, max_depth, handle);
}

}  // namespace sluice::io
