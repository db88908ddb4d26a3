#include "io/checkpoint/pickle.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <unordered_map>

#include "io/file.h"

namespace sluice::io {

// Carries out a pickle's opcodes on a stack of values.
class PickleMachine {
 public:
  PickleMachine(Pickle& to, std::string_view text, std::span<const std::string_view> globals,
                const std::string& where)
      : to_(to), text_(text), globals_(globals), where_(where) {}

  void run() {
    while (step(static_cast<unsigned char>(take(1)[0]))) {
    }
    to_.top_ = pop();
    to_.bytes_ = at_;
  }

 private:
  using Value = PickleValue;
  using Kind = PickleValue::Kind;
  using Items = std::vector<Value>;

  // Bounds of what a hostile pickle can make us hold; a checkpoint of 100,000 tensors has a third.
  static constexpr size_t kMostValues = 1 << 23;
  static constexpr size_t kMostContainers = 1 << 21;
  static constexpr int64_t kOrderedDict = -1;  // as a global

  bool step(unsigned char opcode);
  bool step_text(unsigned char opcode);
  bool step_number(unsigned char opcode);
  bool step_container(unsigned char opcode);
  bool step_memo(unsigned char opcode);
  bool step_object(unsigned char opcode);
  void reduce();
  void build();
  void new_object();
  void new_object_with_names();
  void set_items(std::span<const Value> pairs);
  void append(std::span<const Value> values);
  Value global(std::string_view module, std::string_view name) const;
  Value make_dict(std::span<const Value> arguments);

  [[noreturn]] void refuse(std::string_view fault) const {
    fail(ErrorKind::refused, "{}: {}", where_, fault);
  }

  // Input.
  std::string_view take(uint64_t bytes) {
    if (bytes > text_.size() - at_) throw PickleEndsEarly(where_);
    const std::string_view taken = text_.substr(at_, bytes);
    at_ += bytes;
    return taken;
  }
  template <class Number>
  Number take_number() {
    Number number{};
    std::memcpy(&number, take(sizeof number).data(), sizeof number);
    return number;
  }
  // A length of bytes that follow.
  template <class Number>
  std::string_view take_counted() {
    return take(take_number<Number>());
  }
  std::string_view take_line() {
    const size_t end = text_.find('\n', at_);
    if (end == std::string_view::npos) throw PickleEndsEarly(where_);
    const std::string_view line = text_.substr(at_, end - at_);
    at_ = end + 1;
    return line;
  }
  int64_t number_of(std::string_view text) const {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size())
      refuse(fmt::format("'{}' in the pickle is not a number of 64 bits", printable(text)));
    return number;
  }

  // The stack.
  size_t base() const { return marks_.empty() ? 0 : marks_.back(); }
  void push(Value value) {
    if (++values_ > kMostValues)
      refuse(fmt::format("the pickle has more than {} values", kMostValues));
    stack_.push_back(value);
  }
  void push(Kind kind, int64_t number = 0) { push({kind, number}); }
  Value pop() {
    if (stack_.size() <= base()) refuse("the pickle pops from an empty stack");
    const Value value = stack_.back();
    stack_.pop_back();
    return value;
  }
  Value& back() {
    if (stack_.size() <= base()) refuse("the pickle looks at an empty stack");
    return stack_.back();
  }
  Items pop_to_mark() {
    if (marks_.empty()) refuse("the pickle goes back to a mark that it has not made");
    Items items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  // Values with parts.
  void push_container(Kind kind, Items items) { push(make_container(kind, std::move(items))); }
  Value make_container(Kind kind, Items items) {
    if (to_.containers_.size() == kMostContainers)
      refuse(fmt::format("the pickle has more than {} lists, tuples and dicts", kMostContainers));
    to_.containers_.push_back(std::move(items));
    return {kind, static_cast<int64_t>(to_.containers_.size() - 1)};
  }
  void push_tuple(size_t count) {
    Items items(count);
    for (size_t i = count; i-- > 0;) items[i] = pop();
    push_container(Kind::tuple, std::move(items));
  }
  void push_text(std::string_view text) {
    to_.texts_.push_back(text);
    push(Kind::text, static_cast<int64_t>(to_.texts_.size() - 1));
  }
  void push_plain_text(std::string_view text) {
    if (text.find('\\') != std::string_view::npos)
      refuse("a text of the pickle has escapes, which are not read");
    push_text(text);
  }
  // A number in two's complement, maybe with more bytes than it needs.
  void push_long(std::string_view bytes) {
    const bool negative = !bytes.empty() && (static_cast<unsigned char>(bytes.back()) & 0x80) != 0;
    int64_t number = negative ? -1 : 0;
    const std::string_view low = bytes.substr(0, sizeof number);
    const char extension = negative ? '\xff' : '\0';
    const bool fits = bytes.substr(low.size()).find_first_not_of(extension) == std::string::npos;
    std::memcpy(&number, low.data(), low.size());
    if (!fits || (number < 0) != negative) return push(Kind::big_integer);
    push(Kind::integer, number);
  }
  void remember(uint64_t place) { memo_.insert_or_assign(place, back()); }
  void recall(uint64_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end())
      refuse(fmt::format("the pickle reads memo {}, which was never stored", place));
    push(found->second);
  }
  uint64_t place_of(std::string_view line) const {
    const int64_t number = number_of(line);
    if (number < 0) refuse("the pickle names a memo below 0");
    return static_cast<uint64_t>(number);
  }
  std::string name_of(const Value& global) const {
    if (global.kind != Kind::global) return "something that is no class";
    return global.number == kOrderedDict
               ? "collections.OrderedDict"
               : std::string(globals_[static_cast<size_t>(global.number)]);
  }

  Pickle& to_;
  std::string_view text_;
  std::span<const std::string_view> globals_;
  const std::string& where_;
  size_t at_ = 0;
  size_t values_ = 0;
  Items stack_;
  std::vector<size_t> marks_;  // places in stack_
  std::unordered_map<uint64_t, Value> memo_;
};

// False at the end.
bool PickleMachine::step(unsigned char opcode) {
  switch (opcode) {
    case '.':
      return false;
    case 0x80:
      if (const auto protocol = take_number<uint8_t>(); protocol > 5)
        refuse(fmt::format("the pickle has protocol {}; 0 to 5 are known", protocol));
      return true;
    case 0x95:
      if (const auto bytes = take_number<uint64_t>(); bytes > text_.size() - at_)
        throw PickleEndsEarly(where_ + ": a frame is longer than the pickle");
      return true;
    case '(':
      marks_.push_back(stack_.size());
      return true;
    case '0':
      if (stack_.size() > base()) {
        stack_.pop_back();
      } else {
        pop_to_mark();
      }
      return true;
    case '1':
      pop_to_mark();
      return true;
    case '2':
      push(Value(back()));
      return true;
    case 'N':
      push(Kind::none);
      return true;
    case 0x88:
      push(Kind::boolean, 1);
      return true;
    case 0x89:
      push(Kind::boolean, 0);
      return true;
    default:
      break;
  }
  if (step_text(opcode) || step_number(opcode) || step_container(opcode) || step_memo(opcode) ||
      step_object(opcode))
    return true;
  refuse(fmt::format("the pickle has the opcode 0x{:02x}, which is not accepted", opcode));
}

bool PickleMachine::step_text(unsigned char opcode) {
  switch (opcode) {
    case 'S': {
      const std::string_view line = take_line();
      const bool quoted = line.size() >= 2 && line.front() == line.back() &&
                          (line.front() == '\'' || line.front() == '"');
      if (!quoted) refuse("a text of the pickle has no quotes");
      push_plain_text(line.substr(1, line.size() - 2));
      return true;
    }
    case 'V':
      push_plain_text(take_line());
      return true;
    case 'U':
    case 'C':
    case 0x8c:
      push_text(take_counted<uint8_t>());
      return true;
    case 'T':
    case 'X':
    case 'B':
      push_text(take_counted<uint32_t>());
      return true;
    case 0x8d:
    case 0x8e:
    case 0x96:
      push_text(take_counted<uint64_t>());
      return true;
    default:
      return false;
  }
}

bool PickleMachine::step_number(unsigned char opcode) {
  switch (opcode) {
    case 'J':
      push(Kind::integer, take_number<int32_t>());
      return true;
    case 'K':
      push(Kind::integer, take_number<uint8_t>());
      return true;
    case 'M':
      push(Kind::integer, take_number<uint16_t>());
      return true;
    case 'I': {
      const std::string_view line = take_line();
      if (line == "00" || line == "01") {
        push(Kind::boolean, line == "01");
      } else {
        push(Kind::integer, number_of(line));
      }
      return true;
    }
    case 'L': {
      std::string_view line = take_line();
      if (line.ends_with('L')) line.remove_suffix(1);
      push(Kind::integer, number_of(line));
      return true;
    }
    case 0x8a:
      push_long(take_counted<uint8_t>());
      return true;
    case 0x8b:
      push_long(take_counted<uint32_t>());
      return true;
    case 'F':
      take_line();
      push(Kind::real);
      return true;
    case 'G':
      take(8);
      push(Kind::real);
      return true;
    default:
      return false;
  }
}

bool PickleMachine::step_container(unsigned char opcode) {
  switch (opcode) {
    case ')':
      push_container(Kind::tuple, {});
      return true;
    case 0x85:
    case 0x86:
    case 0x87:
      push_tuple(opcode - 0x84u);
      return true;
    case 't':
      push_container(Kind::tuple, pop_to_mark());
      return true;
    case ']':
      push_container(Kind::list, {});
      return true;
    case 'l':
      push_container(Kind::list, pop_to_mark());
      return true;
    case '}':
      push_container(Kind::dict, {});
      return true;
    case 'd': {
      const Items pairs = pop_to_mark();
      push_container(Kind::dict, {});
      set_items(pairs);
      return true;
    }
    case 0x8f:
      push_container(Kind::set, {});
      return true;
    case 0x91:
      push_container(Kind::set, pop_to_mark());
      return true;
    case 'a':
      append(std::array{pop()});
      return true;
    case 'e':
    case 0x90:
      append(pop_to_mark());
      return true;
    case 's': {
      const Value value = pop();
      const Value key = pop();
      set_items(std::array{key, value});
      return true;
    }
    case 'u':
      set_items(pop_to_mark());
      return true;
    default:
      return false;
  }
}

bool PickleMachine::step_memo(unsigned char opcode) {
  switch (opcode) {
    case 'p':
      remember(place_of(take_line()));
      return true;
    case 'q':
      remember(take_number<uint8_t>());
      return true;
    case 'r':
      remember(take_number<uint32_t>());
      return true;
    case 0x94:
      remember(memo_.size());
      return true;
    case 'g':
      recall(place_of(take_line()));
      return true;
    case 'h':
      recall(take_number<uint8_t>());
      return true;
    case 'j':
      recall(take_number<uint32_t>());
      return true;
    default:
      return false;
  }
}

bool PickleMachine::step_object(unsigned char opcode) {
  switch (opcode) {
    case 'c':
    case 'i': {
      const std::string_view module = take_line();
      const std::string_view name = take_line();
      const Value named = global(module, name);
      if (opcode == 'i') refuse(fmt::format("the pickle makes a {} with INST", name_of(named)));
      push(named);
      return true;
    }
    case 0x93: {
      const Value name = pop(), module = pop();
      if (name.kind != Kind::text || module.kind != Kind::text)
        refuse("the pickle names a global by something that is no text");
      push(global(to_.text(module), to_.text(name)));
      return true;
    }
    case 'o':
      refuse("the pickle makes an object with OBJ, which state dicts do not");
    case 0x82:
    case 0x83:
    case 0x84:
      refuse("the pickle names a global by a number of its own (an EXT opcode)");
    case 0x97:
    case 0x98:
      refuse("the pickle has data out of band, which no file has");
    case 'P':
      refuse("the pickle has a persistent id that is a text, not a storage");
    case 'Q': {
      const Value made = make_container(Kind::persistent, {pop()});
      to_.persistent_.push_back(made);
      push(made);
      return true;
    }
    case 'R':
      reduce();
      return true;
    case 'b':
      build();
      return true;
    case 0x81:
      new_object();
      return true;
    case 0x92:
      new_object_with_names();
      return true;
    default:
      return false;
  }
}

PickleValue PickleMachine::global(std::string_view module, std::string_view name) const {
  const std::string full = fmt::format("{}.{}", module, name);
  if (full == "collections.OrderedDict") return {Kind::global, kOrderedDict};
  const auto found = std::ranges::find(globals_, full);
  if (found == globals_.end())
    refuse(
        fmt::format("its pickle asks for {}, which is no part of a dict of tensors; nothing was "
                    "run, and the file is not opened",
                    printable(full)));
  return {Kind::global, found - globals_.begin()};
}

// An OrderedDict of a list of pairs, or an empty one.
PickleValue PickleMachine::make_dict(std::span<const Value> arguments) {
  Items pairs;
  for (const Value& list : arguments) {
    if (list.kind != Kind::list) refuse("an OrderedDict of the pickle is not made of a list");
    for (const Value& pair : to_.items(list)) {
      const bool fits = pair.kind == Kind::list || pair.kind == Kind::tuple;
      if (!fits || to_.items(pair).size() != 2)
        refuse("an OrderedDict of the pickle is not made of pairs");
      if (++values_ > kMostValues)
        refuse(fmt::format("the pickle has more than {} values", kMostValues));
      pairs.insert(pairs.end(), to_.items(pair).begin(), to_.items(pair).end());
    }
  }
  return make_container(Kind::dict, std::move(pairs));
}

void PickleMachine::reduce() {
  const Value arguments = pop();
  const Value callable = pop();
  if (arguments.kind != Kind::tuple) refuse("the pickle calls with arguments that are no tuple");
  if (callable.kind != Kind::global) refuse("the pickle calls something that is no function");
  if (callable.number == kOrderedDict) return push(make_dict(to_.items(arguments)));
  // The arguments are the tuple's, which is shared.
  push_container(Kind::call, {callable, arguments});
}

void PickleMachine::build() {
  pop();  // the state, such as the _metadata of a state dict
  const Kind kind = back().kind;
  if (kind != Kind::dict && kind != Kind::call)
    refuse(
        "the pickle sets the state (BUILD) of something that is neither an OrderedDict nor a "
        "tensor");
}

void PickleMachine::new_object() {
  const Value arguments = pop();
  const Value type = pop();
  if (type.kind != Kind::global || type.number != kOrderedDict || arguments.kind != Kind::tuple)
    refuse(fmt::format("the pickle makes {} with NEWOBJ, which state dicts do not", name_of(type)));
  push(make_dict(to_.items(arguments)));
}

void PickleMachine::new_object_with_names() {
  pop();
  pop();
  refuse(
      fmt::format("the pickle makes {} with NEWOBJ_EX, which state dicts do not", name_of(pop())));
}

void PickleMachine::set_items(std::span<const Value> pairs) {
  if (pairs.size() % 2 != 0) refuse("the pickle has a dict with a key and no value");
  if (back().kind != Kind::dict) refuse("the pickle sets items of something that is no dict");
  Items& items = to_.containers_[static_cast<size_t>(back().number)];
  items.insert(items.end(), pairs.begin(), pairs.end());
}

void PickleMachine::append(std::span<const Value> values) {
  if (back().kind != Kind::list && back().kind != Kind::set)
    refuse("the pickle appends to something that is no list");
  Items& items = to_.containers_[static_cast<size_t>(back().number)];
  items.insert(items.end(), values.begin(), values.end());
}

Pickle::Pickle(std::string_view text, std::span<const std::string_view> globals,
               const std::string& where) {
  PickleMachine(*this, text, globals, where).run();
}

}  // namespace sluice::io
