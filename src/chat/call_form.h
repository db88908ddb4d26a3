// How models write calls of tools, exactly: what a grammar has to allow.
#pragma once

#include <cstdint>
#include <optional>
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

struct CallForm {
  enum class Style : uint8_t {
    json,        // an object
    parameters,  // <parameter=NAME> VALUE </parameter>, each in lines of their own
    keys,        // <arg_key>NAME</arg_key> <arg_value>VALUE</arg_value>
  };
  std::span<const CallPiece> begin;    // before all calls
  std::span<const CallPiece> call;     // one of them
  std::span<const CallPiece> between;  // two of them
  std::span<const CallPiece> end;      // behind all
  std::string_view opens = {};         // what no text before the calls holds; empty: see `bare`
  bool bare = false;                   // an answer that begins with { is a call
  bool several = true;                 // an answer may have more than one
  Style style = Style::json;
};

// That of a chat template; nullopt: it knows none of these.
std::optional<CallForm> call_form(std::string_view chat_template);

}  // namespace sluice
