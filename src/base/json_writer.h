// JSON that is written as it is made, for what would be too large as a document: the same text that
// Json::dump() gives, where keys are written in their order.
#pragma once

#include <concepts>
#include <functional>
#include <initializer_list>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/json.h"

namespace sluice {

class JsonWriter {
 public:
  using Sink = std::function<void(std::string_view)>;
  static constexpr size_t kPiece = 1 << 16;  // bytes that are given to the sink at once, about

  // `indent`: spaces a level; -1: all in one line.
  explicit JsonWriter(Sink sink, int indent = -1) : sink_(std::move(sink)), indent_(indent) {}

  void begin_object() { begin('{'); }
  void end_object() { end('}'); }
  // A list: of what `write` writes, in all or of each item, or of the items themselves.
  template <std::invocable Write>
  void array(Write write) {
    begin('[');
    write();
    end(']');
  }
  template <class Items, class Write>
  void array(const Items& items, Write write) {
    array([&] {
      for (const auto& item : items) write(item);
    });
  }
  template <std::ranges::range Items>
  void array(const Items& items) {
    array(items, [this](const auto& item) { value(item); });
  }
  void key(std::string_view name);
  // Writes a value of any depth. Bytes that are not UTF-8 become U+FFFD.
  void value(const Json& json);
  void member(std::string_view name, const Json& json) {
    key(name);
    value(json);
  }
  // The same of a value whose objects have an order of their own.
  template <std::same_as<nlohmann::ordered_json> Ordered>
  void value(const Ordered& json) {
    write(json);
  }
  template <std::same_as<nlohmann::ordered_json> Ordered>
  void member(std::string_view name, const Ordered& json) {
    key(name);
    write(json);
  }
  // A value whose JSON there is.
  void raw(std::string_view json);
  // An object of `members` and of `parts`, each of which writes its value, in the order of names.
  struct Part {
    std::string_view name;
    std::function<void()> write;
  };
  void object(const Json& members, std::vector<Part> parts);
  // A text of several parts, each of whole characters.
  void text(std::initializer_list<std::string_view> parts);
  // Passes everything written so far, and then `after`, to the sink.
  void flush(std::string_view after = {});

 private:
  template <class SomeJson>
  void write(const SomeJson& json);
  void begin(char bracket);
  void end(char bracket);
  void begin_value();
  void break_line(size_t levels);
  void append_escaped(std::string_view text);

  Sink sink_;
  int indent_;
  std::string buffer_;
  std::vector<bool>
      filled_;  // of the objects and arrays that have begun: whether anything is in it
  bool after_key_ = false;
};

// Appends the JSON that write(json) writes to `out`, and then `after`.
template <class Write>
void append_json(std::string& out, Write write, std::string_view after = {}) {
  JsonWriter json([&](std::string_view piece) { out += piece; });
  write(json);
  json.flush(after);
}

}  // namespace sluice
