// Cuts a normalized text into the pieces that the model encodes one by one, and may rewrite them:
// the pre_tokenizer of tokenizer.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/base/json.h"
#include "src/text/component.h"
#include "src/text/match_stream.h"
#include "src/text/pattern.h"

namespace sluice {

// A stretch of text, as pieces. The first may have begun in the stretch before, and what lies
// behind the last end goes on in the next.
struct Pieces {
  std::string text;
  std::vector<uint32_t> ends;  // offsets into the text

  // Calls add(part, whether the piece ends with it).
  template <class Add>
  void each(Add add) const {
    const std::string_view all = text;
    size_t begin = 0;
    for (uint32_t end : ends) {
      add(all.substr(begin, end - begin), true);
      begin = end;
    }
    if (begin < all.size()) add(all.substr(begin), false);
  }
};

// The treatment of matches of a Split's pattern.
enum class SplitBehavior : uint8_t {
  removed,
  isolated,              // each a piece of its own
  merged_with_previous,  // at the end of the piece before
  merged_with_next,      // at the beginning of the piece after
  contiguous,            // adjacent ones together are a piece
};

// "Split", and the types that are a Split by a fixed pattern.
struct Split {
  Pattern pattern;
  SplitBehavior behavior;
  bool invert;  // the pattern describes the pieces, not what is between them
};

// "ByteLevel": writes each piece in the byte alphabet.
struct ByteLevelAlphabet {};

// The part of "ByteLevel" that puts a space before each piece that has none.
struct PrefixSpace {};

// The part of "Metaspace" that is no Split.
struct ReplaceSpaces {
  std::string by;
  Metaspace::Prepend prepend;  // to each piece, or to that with which the whole text begins
};

// "UnicodeScripts": a piece ends where the script changes. Characters of none go with those before
// them, and at the beginning away.
struct ScriptRuns {};

class PreTokenizer {
 public:
  using Step = std::variant<Split, PrefixSpace, ByteLevelAlphabet, ReplaceSpaces, ScriptRuns>;

  // `config` is the value of pre_tokenizer, null included. Throws Error(refused), which begins
  // "tokenizer.json: ".
  static PreTokenizer load(const Json& config);

  const std::vector<Step>& steps() const { return steps_; }

 private:
  std::vector<Step> steps_;
};

// Cuts a text that comes bit by bit. No piece is empty.
class PreTokenizerStream {
 public:
  explicit PreTokenizerStream(const PreTokenizer& pre_tokenizer);  // which must outlive this

  // The pieces, or parts of them, that are certain, whatever comes next; with `last`, all that is
  // left, and the next call begins a text. Reused by the next call.
  const Pieces& add(std::string_view text, bool last);

  // Something stands before the text that comes.
  void pass() { at_start_ = false; }

  size_t held() const;  // bytes

 private:
  // State of a step in the pieces so far.
  struct Progress {
    const PreTokenizer::Step* step;
    std::optional<MatchStream> matches = {};  // of a Split, in the piece that it is given
    bool inside = false;                      // of that piece
    bool previous_is_match = false;           // the part of it before
    bool begun = false;                       // the piece that it makes has a text
    std::optional<int32_t> script = {};       // of the piece that ScriptRuns makes
    uint64_t bytes = 0;                       // that it made of the text so far
  };
  // Writes what a step makes.
  class Writer;
  void apply(const Split& split, Progress& progress, std::string_view part, bool end, Writer& out);
  void apply(const PrefixSpace&, Progress& progress, std::string_view part, bool, Writer& out);
  void apply(const ByteLevelAlphabet&, Progress&, std::string_view part, bool, Writer& out);
  void apply(const ReplaceSpaces& spaces, Progress& progress, std::string_view part, bool,
             Writer& out);
  void apply(const ScriptRuns&, Progress& progress, std::string_view part, bool end, Writer& out);

  std::vector<Progress> steps_;
  bool begun_ = false;    // the text
  bool at_start_ = true;  // nothing has come before it, and nothing of it has been removed
  uint64_t bytes_ = 0;    // of it so far
  Pieces pieces_;
  Pieces next_;
};

}  // namespace sluice
