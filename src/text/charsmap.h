// SentencePiece's table of what becomes of characters, and of several in a row, when a text is
// normalized: a trie of bytes (a double array, as Darts-clone writes it), and the texts that its
// entries become.
//   https://github.com/google/sentencepiece (normalizer.cc), https://github.com/s-yata/darts-clone
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

class Charsmap {
 public:
  // `bytes`: the size of the double array, the array, the texts, each with a 0 behind it. Throws
  // Error(refused) that begins with `where` for what is none.
  static Charsmap parse(std::string_view bytes, std::string_view where);

  struct Match {
    size_t bytes = 0;      // of the text; 0: no entry
    std::string_view by;   // their replacement; lives as long as the table
    bool is_open = false;  // the text ends where a longer entry may go on
  };
  // The shortest and the longest entry that a text begins with.
  Match shortest(std::string_view text) const { return find(text, false); }
  Match longest(std::string_view text) const { return find(text, true); }

 private:
  Match find(std::string_view text, bool longest) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace sluice
