// Forms in which models write calls of tools: the tags that a parser looks for, and the exact form,
// which a grammar has to allow.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace sluice {

// A piece of what is written.
struct CallPiece {
  enum class Kind : uint8_t {
    text,       // as it is
    token,      // of one token, which may be special
    blank,      // or none
    name,       // of the tool
    id,         // nine letters and digits
    number,     // of the call
    arguments,  // as `style` says
  };
  Kind kind = Kind::text;
  std::string_view text = {};
};

// Tags around calls. A parser needs no table for the text between them, mostly: it is an object or
// a list of objects {name, arguments}, or a name and its arguments, as JSON or between tags. Other
// forms have a notation (src/chat/written_calls.h), and are read when they have ended.
struct CallTags {
  enum class Notation : uint8_t { any, python, keyed, named_objects, invokes };
  std::string_view open = {};    // of a call; empty: the parser of channels finds them
  std::string_view close = {};   // empty: the end of the JSON
  std::string_view before = {};  // all calls of an answer; empty: nothing
  std::string_view behind = {};
  bool bare = false;         // an answer that begins with { may be a call, without a tag
  bool around_text = false;  // `before` and `behind` are around a text, not around calls
  bool several = false;      // objects between the tags, without a list
  bool lines = false;        // values between tags have lines of their own
  Notation notation = Notation::any;
  std::string_view prefix = {};  // of the names of tags between these
  std::string_view quote = {};   // the mark around a text in keyed notation; empty: kKeyedMark
  std::string_view lone = {};    // what some calls begin with, where `open` was left out

  // Returns the tag that no text before the calls holds.
  std::string_view first() const { return before.empty() ? open : before; }
};

struct CallForm {
  enum class Style : uint8_t {
    json,        // an object
    parameters,  // <parameter=NAME> VALUE </parameter>, each in lines of their own
    keys,        // <arg_key>NAME</arg_key> <arg_value>VALUE</arg_value>
  };
  CallTags tags = {};
  std::span<const CallPiece> begin = {};    // before all calls
  std::span<const CallPiece> call = {};     // one of them
  std::span<const CallPiece> between = {};  // two of them
  std::span<const CallPiece> end = {};      // behind all
  bool several = true;                      // an answer may have more than one
  Style style = Style::json;
};

// That of models whose chat template knows none: Hermes'.
const CallForm& generic_call_form();
// That of a chat template; null: it knows none of these.
const CallForm* call_form(std::string_view chat_template);
// The same, where it says exactly how calls are written: of some forms only a parser is known.
const CallForm* exact_call_form(std::string_view chat_template);

}  // namespace sluice
