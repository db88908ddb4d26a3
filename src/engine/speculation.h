// Guesses at the tokens that come next, to be verified together: a pass over streamed weights costs
// the disk the same for one token as for eight. What is accepted is what would have been generated
// anyway, so guesses change the speed and never the text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace sluice {

// Tokens of one verification: the one that is certain and the guesses after it.
inline constexpr int64_t kSpeculativeRows = 8;

// Prompt lookup: what followed the last tokens where they stood before (Saxena, "Prompt Lookup
// Decoding", 2023). The number of guesses follows what was accepted lately.
class PromptLookup {
 public:
  // At most `most` guesses at what follows `ids` (prompt and continuation); none where their end is
  // new.
  std::vector<int32_t> guess(std::span<const int32_t> ids, int64_t most) const;
  void learn(int64_t guessed, int64_t accepted);

 private:
  int64_t length_ = kSpeculativeRows - 1;
};

}  // namespace sluice
