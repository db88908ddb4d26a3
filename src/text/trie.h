// The tokens that a text begins with: a trie of bytes in one hash table of edges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "src/text/tokenizer_file.h"

namespace sluice {

class Trie {
 public:
  // A place in the trie; the root is the empty text.
  struct Node {
    uint32_t index = 0;
    int32_t token = -1;  // that ends here; -1: none
    bool is_leaf = false;
  };

  Trie() : slots_(16) {}
  // Makes a trie of the vocabulary's tokens that a text may have; of an empty one there is none.
  // Throws Error(refused) that begins with `where` when they have too much text.
  Trie(const TokenizerFile& file, std::string_view where);
  // One byte further; false: no token goes on like that.
  bool step(Node& node, char byte) const;

 private:
  struct Slot {
    uint64_t edge = 0;  // parent << 8 | byte, + 1; 0: empty
    uint32_t child = 0;
    int32_t token = -1;
  };
  void add(std::string_view token, int32_t id);
  size_t slot_of(uint64_t edge) const;
  void grow();

  std::vector<Slot> slots_;
  std::vector<bool> has_children_ = {false};  // by index
  size_t edges_ = 0;
};

}  // namespace sluice
