// Tokens that may come next: a bit for each of the vocabulary, found by one walk over the trie of
// tokens and kept for when the same state comes again.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "src/grammar/state.h"
#include "src/grammar/token_table.h"

namespace sluice::grammar {

// Bit id % 64 of word id / 64.
using TokenBits = std::span<const uint64_t>;

struct MaskStats {
  int64_t found = 0;  // in the cache
  int64_t walks = 0;
};

// For all requests of an engine; of one thread.
class TokenMasks {
 public:
  explicit TokenMasks(std::shared_ptr<const TokenTable> table);

  // Bytes that the masks, and what makes them, take at most; the table's are apart.
  static uint64_t bytes(int64_t vocab_size);
  const TokenTable& table() const { return *table_; }

  // The tokens whose whole text can come next; `first`: at the beginning of a text. Valid until the
  // next call. Error(refused) for a grammar so ambiguous that this takes too long.
  TokenBits find(const std::shared_ptr<const Grammar>& grammar, const State& state, bool first);

  const MaskStats& stats() const { return stats_; }

 private:
  struct Key {
    std::weak_ptr<const Grammar> grammar;  // so that its address is no other's meanwhile
    State state;
    bool first = false;
    const Grammar* address = nullptr;
    bool operator==(const Key& other) const {
      return address == other.address && first == other.first && state == other.state;
    }
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Entry {
    Key key;
    std::vector<uint64_t> bits;
  };

  // States that walks have been through, with where each class of bytes leads: a deterministic
  // automaton, made where it is walked on.
  struct Known {
    State state;
    std::vector<uint32_t> next;  // by class
  };
  void forget_states();
  uint32_t number_of(const State& state);
  uint32_t step(uint32_t from, uint8_t byte);
  void make_room();
  void walk(const TokenTrie& trie, const State& from, std::vector<uint64_t>& bits);

  std::shared_ptr<const TokenTable> table_;
  std::list<Entry> entries_;  // the last used is the first
  std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> by_key_;
  std::shared_ptr<const Grammar> walked_;  // whose states are known
  std::vector<Known> known_;
  std::unordered_map<State, uint32_t, StateHash> numbers_;
  uint64_t known_bytes_ = 0;
  std::vector<uint32_t> path_;  // states from the root of the trie down
  size_t path_size_ = 0;
  StepBudget budget_{0};
  MaskStats stats_;
};

}  // namespace sluice::grammar
