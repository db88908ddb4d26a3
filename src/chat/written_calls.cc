#include "src/chat/written_calls.h"

#include <utility>

#include "src/base/json.h"
#include "src/chat/literals.h"

namespace sluice {
namespace {

using ArgumentKind = WrittenCall::Argument::Kind;
using Notation = Literals::Notation;

bool read_arguments_of(TextReader& in, Notation notation, std::string_view separator,
                       std::string_view end, WrittenCall& call) {
  std::vector<Literals::Member> members;
  if (!Literals(in, notation).members(separator, end, members)) return false;
  for (Literals::Member& member : members)
    call.arguments.push_back({std::move(member.key), std::move(member.value), ArgumentKind::json});
  return true;
}

bool read_python_call(TextReader& in, WrittenCall& call) {
  call.name = in.take_until("( \t\r\n,[]{}'\"");
  return !call.name.empty() && in.take_behind_space("(") &&
         read_arguments_of(in, Notation::python, "=", ")", call);
}

// Goes behind a call that cannot be read, where its brackets and quotes tell its end.
bool skip_python_call(TextReader& in, bool list) {
  std::string open;
  while (!in.ended()) {
    const char c = in.next();
    if (open.empty() && (c == (list ? ',' : '\n') || (list && c == ']'))) return true;
    in.take_char();
    if (c == '"' || c == '\'') {
      const char mark[] = {c, '\\', '\0'};
      while (in.take_until(mark), in.next() == '\\') in.take_char(), in.take_char();
      if (in.take_char() != c) return false;
    }
    const size_t opens = std::string_view("([{").find(c), closes = std::string_view(")]}").find(c);
    if (opens != std::string_view::npos) open += ")]}"[opens];
    if (closes == std::string_view::npos) continue;
    if (open.empty() || open.back() != c) return false;
    open.pop_back();
  }
  return open.empty();
}

WrittenCalls read_exact_keyed_calls(std::string_view text) {
  TextReader in(text);
  std::vector<WrittenCall> calls;
  in.skip_space();
  while (!in.ended()) {
    WrittenCall& call = calls.emplace_back();
    if (!in.take("call:")) return std::nullopt;
    call.name = in.take_until("{ \t\r\n");
    if (call.name.empty() || !in.take_behind_space("{")) return std::nullopt;
    if (!read_arguments_of(in, Notation::keyed, ":", "}", call)) return std::nullopt;
    in.skip_space();
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

// The value of ATTRIBUTE="..." in a tag; some models write other quotation marks, or none.
std::string_view attribute(std::string_view tag, const std::string& name) {
  const std::string begin = name + "=";
  const size_t at = tag.find(begin);
  if (at == tag.npos) return {};
  tag.remove_prefix(at + begin.size());
  const bool quoted = tag.starts_with('"') || tag.starts_with('\'');
  if (!quoted) return tag.substr(0, tag.find_first_of(" \t\r\n"));
  return tag.substr(1, tag.find(tag[0], 1) - 1);
}

// The begin of the tag of the call's next argument; npos: there is none.
size_t next_argument(std::string_view text, const std::string& begin, const WrittenCall& call,
                     const HasArgument& has) {
  for (size_t at = text.find(begin); at != text.npos; at = text.find(begin, at + 1)) {
    const std::string_view tag = text.substr(at, text.find('>', at) - at);
    if (has(call.name, attribute(tag, " name"))) return at;
  }
  return text.npos;
}

// Takes a value and its tag, or where this was left out, what is before the next argument or the
// end of the call.
std::optional<std::string_view> take_value(TextReader& in, const std::string& prefix,
                                           const WrittenCall& call, const HasArgument& has) {
  const TextReader before = in;
  const std::optional<std::string_view> whole = in.take_before("</" + prefix + "parameter>");
  const std::string_view text = whole ? *whole : before.rest();
  size_t stop = next_argument(text, "<" + prefix + "parameter", call, has);
  if (stop == text.npos && !whole) stop = text.find("</" + prefix + "invoke>");
  if (stop == text.npos) return whole;
  in = before;
  in.skip(stop);
  const std::string_view value = text.substr(0, stop);
  return value.substr(0, value.find_last_not_of(" \t\r\n") + 1);
}

bool read_invoke(TextReader& in, const std::string& prefix, const HasArgument& has,
                 WrittenCall& call) {
  const std::string begin = "<" + prefix + "parameter";
  const std::optional<std::string_view> head = in.take_before(">");
  if (!head) return false;
  call.name = attribute(*head, " name");
  in.skip_space();
  while (in.take(begin)) {
    const std::optional<std::string_view> tag = in.take_before(">");
    const std::optional<std::string_view> value =
        tag ? take_value(in, prefix, call, has) : std::nullopt;
    if (!value) return false;
    const std::string_view string = attribute(*tag, " string");
    call.arguments.push_back({.key = std::string(attribute(*tag, " name")),
                              .value = std::string(*value),
                              .kind = string == "true" ? ArgumentKind::text
                                      : string == "false" && Json::accept(*value)
                                          ? ArgumentKind::json
                                          : ArgumentKind::by_schema});
    in.skip_space();
  }
  return !call.name.empty() && in.take("</" + prefix + "invoke>");
}

}  // namespace

WrittenCalls read_python_calls(std::string_view text, bool closed) {
  TextReader in(text);
  std::vector<WrittenCall> calls;
  const bool list = in.take_behind_space("[");
  in.skip_space();
  while (!in.ended() && !in.next_is("]")) {
    WrittenCall& call = calls.emplace_back();
    const TextReader begin = in;
    if (!read_python_call(in, call)) {
      in = begin;
      if (!skip_python_call(in, list)) return std::nullopt;
      call = {};
      call.unread = in.since(begin.at());
    }
    in.skip_space();
    if (in.take(",")) in.skip_space();
  }
  if (list && !in.take("]") && !(closed && in.ended())) return std::nullopt;
  in.skip_space();
  if (!in.ended() || calls.empty()) return std::nullopt;
  return calls;
}

WrittenCalls read_keyed_calls(std::string_view text, bool closed) {
  WrittenCalls calls = read_exact_keyed_calls(text);
  if (calls || !closed) return calls;
  // A brace too few or too many of arguments that have no other.
  const size_t brace = text.find('{');
  if (brace == text.npos || text.find('{', brace + 1) != text.npos) return calls;
  const std::string_view known = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  if (known.ends_with("}}")) return read_exact_keyed_calls(known.substr(0, known.size() - 1));
  return read_exact_keyed_calls(std::string(text) + "}");
}

WrittenCalls read_named_objects(std::string_view text) {
  TextReader in(text);
  std::vector<WrittenCall> calls;
  if (!in.take_behind_space("[")) return std::nullopt;
  while (!in.take_behind_space("]")) {
    if (!calls.empty() && !in.take(",")) return std::nullopt;
    WrittenCall& call = calls.emplace_back();
    if (!in.take_behind_space("{") || !in.take_behind_space("\"")) return std::nullopt;
    call.name = in.take_until("\"");
    const bool begins = in.take("\"") && in.take_behind_space(":") && in.take_behind_space("{");
    if (!begins || !read_arguments_of(in, Notation::python, ":", "}", call)) return std::nullopt;
    if (!in.take_behind_space("}")) return std::nullopt;
  }
  in.skip_space();
  if (!in.ended() || calls.empty()) return std::nullopt;
  return calls;
}

WrittenCalls read_invokes(std::string_view text, std::string_view prefix, const HasArgument& has) {
  TextReader in(text);
  std::vector<WrittenCall> calls;
  const std::string named(prefix), begin = "<" + named + "invoke";
  in.skip_space();
  while (in.take(begin)) {
    if (!read_invoke(in, named, has, calls.emplace_back())) return std::nullopt;
    in.skip_space();
  }
  if (!in.ended() || calls.empty()) return std::nullopt;
  return calls;
}

}  // namespace sluice
