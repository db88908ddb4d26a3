#include "src/cli/token_lists.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/units.h"

namespace sluice::cli {
namespace {

// Reads no value but lists and numbers without a sign, a fraction or an exponent, so that nothing
// of the text has to be kept.
class Parser {
 public:
  Parser(io::InputStream input, const std::string& name) : input_(std::move(input)), name_(name) {}

  static constexpr int kEnd = -1;
  // The next character that is no white space, which stays.
  int peek() {
    while (now() == ' ' || now() == '\t' || now() == '\n' || now() == '\r') advance();
    return now();
  }
  bool take(char c) {
    if (peek() != c) return false;
    advance();
    return true;
  }
  void expect(char c) {
    if (!take(c)) refuse(fmt::format("a '{}' is expected", c));
  }
  // Returns whether a value of some kind begins here.
  bool is_value() {
    constexpr std::string_view kFirst = "0123456789-\"{[tfnNI";
    return peek() != kEnd && kFirst.find(static_cast<char>(now())) != std::string_view::npos;
  }
  [[noreturn]] void refuse(std::string_view reason) {
    fail(ErrorKind::refused, "{}: not valid JSON: {} {}", name_, reason,
         now() == kEnd ? std::string("where the file ends") : fmt::format("at byte {}", at_ + 1));
  }

  // A number that may be an id; nullopt for other numbers and values.
  std::optional<int32_t> id() {
    const int first = peek();
    if (!is_value()) refuse("a token id is expected");
    if (!is_digit(first)) return std::nullopt;
    int64_t value = 0;
    for (; is_digit(now()); advance()) {
      value = std::min<int64_t>(value * 10 + (now() - '0'), int64_t{INT32_MAX} + 1);
      if (first == '0' && value > 0) refuse("a number begins with 0");
    }
    bool whole = now() != '.' && now() != 'e' && now() != 'E';
    return whole && value <= INT32_MAX ? std::optional(static_cast<int32_t>(value)) : std::nullopt;
  }
  // Python's module does not mind it either.
  void skip_byte_order_mark() {
    for (char c : std::string_view("\xEF\xBB\xBF")) {
      if (now() == static_cast<unsigned char>(c)) advance();
    }
  }

 private:
  static bool is_digit(int c) { return c >= '0' && c <= '9'; }
  int now() {
    if (piece_.empty() && !ended_) {
      piece_ = input_.read();
      ended_ = piece_.empty();
    }
    return ended_ ? kEnd : static_cast<unsigned char>(piece_.front());
  }
  void advance() {
    piece_.remove_prefix(1);
    ++at_;
  }

  io::InputStream input_;
  const std::string& name_;
  std::string_view piece_;  // what is left of it
  bool ended_ = false;
  uint64_t at_ = 0;
};

}  // namespace

void TokenLists::close() {
  longest_ = std::max(longest_, open());
  ends_.push_back(ids_.size());
}

TokenLists read_token_lists(io::InputStream input, const std::string& name, size_t most,
                            const std::function<void(std::span<const int32_t>)>& check,
                            const std::function<void(uint64_t)>& hold) {
  constexpr uint64_t kHeldAnyway = 128 * KiB;
  TokenLists lists;
  Parser parser(std::move(input), name);
  uint64_t held = kHeldAnyway;
  auto one = [&] {  // behind its '['
    if (parser.peek() == ']') fail(ErrorKind::usage, "{}: list {} is empty", name, lists.size());
    do {
      std::optional<int32_t> id = parser.id();
      if (!id) {
        fail(ErrorKind::usage, "{}: list {} holds something that is not a token id", name,
             lists.size());
      }
      if (lists.open() == most) {
        fail(ErrorKind::usage, "{}: list {} has more than {} tokens, above --max-model-len {}",
             name, lists.size(), most, most);
      }
      lists.add(*id);
      if (lists.bytes() > held) hold(held = 2 * lists.bytes());
    } while (parser.take(','));
    parser.expect(']');
    lists.close();
    check(lists[lists.size() - 1]);
  };
  auto no_list = [&] { fail(ErrorKind::usage, "{}: must be a list of lists of token ids", name); };
  auto begin_list = [&] {
    if (!parser.take('[')) parser.is_value() ? no_list() : parser.refuse("a list is expected");
  };
  parser.skip_byte_order_mark();
  begin_list();
  if (parser.peek() == ']') no_list();
  if (parser.peek() != '[') {
    one();
  } else {
    do {
      begin_list();
      one();
    } while (parser.take(','));
    parser.expect(']');
  }
  if (parser.peek() != Parser::kEnd) parser.refuse("something follows");
  return lists;
}

}  // namespace sluice::cli
