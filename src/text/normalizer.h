// Rewrites text before anything else looks at it: the normalizer of tokenizer.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/base/json.h"
#include "src/text/character_maps.h"
#include "src/text/charsmap.h"
#include "src/text/graphemes.h"
#include "src/text/match_stream.h"
#include "src/text/pattern.h"

namespace sluice {

enum class UnicodeForm : uint8_t { nfc, nfd, nfkc, nfkd };

// Each character for itself, whatever stands around it.
struct MapCharacters {
  CharacterMap map;
};

// Takes white space off the ends.
struct Strip {
  bool left;
  bool right;
};

struct Replace {
  Pattern pattern;
  std::string content;
};

// Puts `text` before what is not empty.
struct Prepend {
  std::string text;
};

// Exchanges what a table of SentencePiece has: the longest entries, as that library does, or, as
// Hugging Face tokenizers, characters and grapheme clusters of at most 5 bytes.
struct Exchange {
  Charsmap map;
  bool longest;
};

class Normalizer {
 public:
  using Step = std::variant<UnicodeForm, MapCharacters, Strip, Replace, Prepend, Exchange>;

  // `config` is the value of normalizer, null included. Throws Error(refused), which begins
  // "tokenizer.json: ".
  static Normalizer load(const Json& config);

  const std::vector<Step>& steps() const { return steps_; }
  // Valid UTF-8 in and out.
  std::string normalize(std::string_view text) const;

 private:
  std::vector<Step> steps_;
};

// Normalizes a text that comes bit by bit.
class NormalizerStream {
 public:
  explicit NormalizerStream(const Normalizer& normalizer);  // which must outlive this

  // Puts in the place of `text` what is certain of the normalized text, whatever comes next; with
  // `last`, all that is left, and the next call begins a text.
  void add(std::string& text, bool last);

  size_t held() const;  // bytes

 private:
  // State of a step in the text so far.
  struct Progress {
    const Normalizer::Step* step;
    std::string held;                    // text that waits for what comes next
    bool begun = false;                  // something has come out
    std::optional<MatchStream> matches;  // of a Replace
    uint64_t bytes = 0;                  // that have come out
    GraphemeBreaks graphemes;            // of an Exchange, which holds the cluster that has begun
    bool is_long = false;                // that one, whose characters come out one by one
  };
  void apply(UnicodeForm form, Progress& progress, std::string& text, bool last);
  void apply(const MapCharacters& characters, Progress&, std::string& text, bool);
  void apply(const Strip& strip, Progress& progress, std::string& text, bool last);
  void apply(const Replace& replace, Progress& progress, std::string& text, bool last);
  void apply(const Prepend& prepend, Progress& progress, std::string& text, bool);
  void apply(const Exchange& exchange, Progress& progress, std::string& text, bool last);
  void exchange_entries(const Exchange& exchange, Progress& progress, std::string_view text,
                        bool last, std::string& result) const;
  void exchange_clusters(const Exchange& exchange, Progress& progress, std::string_view text,
                         bool last, std::string& result) const;

  std::vector<Progress> steps_;
  uint64_t bytes_ = 0;  // of the text so far
};

}  // namespace sluice
