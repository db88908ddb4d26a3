// Patterns of the names of weights, in rules of --quantization and --place. Of several rules the
// first that matches counts.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "src/text/pattern.h"

namespace sluice {

// A run of parts of a name, anywhere in it, between dots: "layers.0-7.mlp" is in
// "model.layers.3.mlp.down_proj". `0-7` is any number from 0 to 7, and `*` alone any parts, one at
// least; within a part `*` is any characters. "re:" begins a regular expression, which matches from
// the name's begin on, as in checkpoints of compressed-tensors.
class NamePattern {
 public:
  // Throws Error(usage), which begins with `where`, for what is no pattern.
  static NamePattern parse(const std::string& text, std::string_view where);

  // Throws Error(usage) where a regular expression takes too many steps.
  bool matches(std::string_view name) const;
  const std::string& text() const { return text_; }
  bool operator==(const NamePattern& other) const { return text_ == other.text_; }

 private:
  std::string text_;
  std::vector<std::string> parts_;
  std::shared_ptr<const Pattern> regex_;  // null: parts_
};

// Returns whether the whole `text` fits `pattern`, in which `*` is any characters.
bool matches(std::string_view pattern, std::string_view text);

}  // namespace sluice
