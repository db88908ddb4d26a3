// Rewrites text before anything else looks at it: the normalizer of tokenizer.json.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "src/base/json.h"
#include "src/text/pattern.h"

namespace sluice {

enum class UnicodeForm : uint8_t { nfc, nfd, nfkc, nfkd };

// Each character for itself, whatever stands around it.
struct Lowercase {};

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

class Normalizer {
 public:
  using Step = std::variant<UnicodeForm, Lowercase, Strip, Replace, Prepend>;

  // `config` is the value of normalizer, null included. Throws Error(refused), which begins
  // "tokenizer.json: ".
  static Normalizer load(const Json& config);

  // Valid UTF-8 in and out.
  std::string normalize(std::string_view text) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace sluice
